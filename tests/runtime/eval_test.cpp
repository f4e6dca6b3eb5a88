// The command `eval` as a user calls it.
#include "runtime/eval.h"

#include <CLI/CLI.hpp>

#include "base/json.h"
#include "tests/runtime/model/model_fixture.h"
#include "tests/support/run_command.h"

namespace tierpack {
namespace {

using namespace testing_support;

// Runs `eval ARGS` and returns what it printed on stdout.
std::string run_eval(std::vector<std::string> arguments) { return run_command(setup_eval, std::move(arguments)); }

class Eval : public testing::Test {
 protected:
  std::string tokens_file(const std::vector<uint32_t>& tokens) {
    std::string text;
    for (const uint32_t token : tokens) text += std::to_string(token) + "\n";
    write_file(directory_ / "tokens.ids", text);
    return directory_ / "tokens.ids";
  }
  TempDirectory directory_;
  const std::string pack_ = pebble_pack();
};

TEST_F(Eval, TheFingerprintIsThatOfTheWrittenLogits) {
  const std::string out = directory_ / "logits.f32";
  const Json result = parse_json(
      run_eval({pack_, "--tokens", tokens_file(some_tokens(20, 4096)), "--logits-out", out, "--threads", "2", "--json"}), "out");
  EXPECT_EQ(result["tokens"], 20);
  EXPECT_EQ(result["predicted"], 19);
  EXPECT_GT(result["perplexity"].get<double>(), 1);
  const std::string bytes = read_file(out);
  EXPECT_EQ(bytes.size(), size_t{20} * 4096 * 4);
  EXPECT_EQ(result["fingerprint"], xxh3_128(as_bytes(bytes)).hex());

  const Json again = parse_json(run_eval({pack_, "--tokens", tokens_file(some_tokens(20, 4096)), "--kl-against", out,
                                          "--threads", "1", "--chunk", "3", "--json"}), "out");
  EXPECT_EQ(again["fingerprint"], result["fingerprint"]);
  EXPECT_EQ(again["kl"]["mean"], 0.0);
  EXPECT_EQ(again["kl"]["max_difference"], 0.0);
  EXPECT_EQ(again["kl"]["same_top"], 1.0);
}

// Other activations are another answer, close by; the output says which they were.
TEST_F(Eval, ActivationsAreRecorded) {
  const std::string tokens = tokens_file(some_tokens(12, 4096)), out = directory_ / "exact.f32";
  const auto result = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {pack_, "--tokens", tokens, "--threads", "2", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse_json(run_eval(arguments), "out");
  };
  const Json exact = result({"--activations", "f32", "--logits-out", out});
  const Json usual = result({"--kl-against", out});
  EXPECT_EQ(exact["options"]["activations"], "f32");
  EXPECT_EQ(usual["options"]["activations"], "int8");
  EXPECT_NE(exact["fingerprint"], usual["fingerprint"]);
  EXPECT_GT(usual["kl"]["mean"].get<double>(), 0);
  EXPECT_LT(usual["kl"]["mean"].get<double>(), 0.01);
  EXPECT_THROW(result({"--activations", "int4"}), CLI::ValidationError);
}

TEST_F(Eval, ACorpusIsReadInWindows) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "Once upon a time, there was a kind girl named Lily. ";
  write_file(directory_ / "corpus.txt", text);
  const Json result = parse_json(
      run_eval({pack_, "--corpus", directory_ / "corpus.txt", "--context", "50", "--threads", "2", "--json"}), "out");
  const auto tokens = result["tokens"].get<uint64_t>();
  EXPECT_GT(tokens, 100u);
  EXPECT_EQ(result["windows"], (tokens + 49) / 50);
  EXPECT_EQ(result["predicted"], tokens - (tokens + 49) / 50);
  EXPECT_LT(result["perplexity"].get<double>(), 20);  // the model knows this kind of text
}

TEST_F(Eval, WritesEveryDecision) {
  const std::string routes = directory_ / "routes.txt";
  run_eval({pack_, "--tokens", tokens_file({5, 6, 7}), "--routes-out", routes, "--threads", "1"});
  std::map<std::string, int> kinds;
  std::istringstream lines(read_file(routes));
  std::string last_attend;
  for (std::string line; std::getline(lines, line);) {
    ++kinds[line.substr(0, line.find(' '))];
    if (line.rfind("attend 5 2 ", 0) == 0) last_attend = line;
  }
  EXPECT_EQ(kinds["route"], 6 * 3);
  EXPECT_EQ(kinds["attend"], 2 * 3);
  EXPECT_EQ(last_attend, "attend 5 2 0-2");
}

TEST_F(Eval, SaysWhatItNeeds) {
  const auto problem = [&](std::vector<std::string> arguments) { return thrown_by([&] { run_eval(std::move(arguments)); }); };
  EXPECT_EQ(problem({pack_}).kind, ErrorKind::kUsage);
  EXPECT_EQ(problem({pack_, "--tokens", tokens_file({})}).kind, ErrorKind::kUsage);
  const Thrown outside = problem({pack_, "--tokens", tokens_file({1, 4096})});
  EXPECT_EQ(outside.kind, ErrorKind::kUsage);
  EXPECT_NE(outside.message.find("4096"), std::string::npos) << outside.message;
  const Thrown too_long = problem({pack_, "--tokens", tokens_file(some_tokens(4097, 4096))});
  EXPECT_EQ(too_long.kind, ErrorKind::kUsage);
  EXPECT_NE(too_long.message.find("4097"), std::string::npos) << too_long.message;
  write_file(directory_ / "short.f32", "1234");
  EXPECT_EQ(problem({pack_, "--tokens", tokens_file({1, 2}), "--kl-against", directory_ / "short.f32"}).kind, ErrorKind::kUsage);
  EXPECT_EQ(problem({pack_, "--tokens", directory_ / "absent.ids"}).kind, ErrorKind::kIo);
  EXPECT_EQ(problem({directory_ / "absent.tierpack", "--tokens", tokens_file({1})}).kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace tierpack
