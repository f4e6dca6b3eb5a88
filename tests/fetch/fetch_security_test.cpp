// What hostile hubs, networks and neighbours try: names, links, tokens, redirects, terminal escapes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <sstream>
#include <thread>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "fetch/http_source.h"
#include "formats/lock.h"
#include "tests/support/fetch_fixture.h"

namespace tierpack::support {
namespace {

namespace fs = std::filesystem;

class FetchSecurity : public FetchTest {};

TEST_F(FetchSecurity, TokensGoToTheirOriginOnly) {
  HubOptions hub_options;
  hub_options.token = "hf_test_token";
  start_hub(hub_options);
  EXPECT_EQ(run(), 1);  // gated
  EXPECT_NE(message_.find("gated"), std::string::npos) << message_;
  write_text(root() / "token", "hf_test_token\n");
  ::chmod((root() / "token").c_str(), 0600);
  auto o = options();
  o.token_file = (root() / "token").string();
  hub_->clear_requests();
  ASSERT_EQ(run(o), 0) << message_;
  for (const HubRequest& request : hub_->requests()) {
    EXPECT_EQ(request.header("authorization"), request.on_cdn ? "" : "Bearer hf_test_token") << request.target;
    EXPECT_EQ(request.header("cookie"), "");
  }
  EXPECT_EQ(read_text(target() / "tierpack.lock.json").find("hf_test_token"), std::string::npos);
}

TEST_F(FetchSecurity, TheEnvironmentsTokenIsForTheHubItself) {
  HubOptions hub_options;
  hub_options.token = "hf_env_token";
  start_hub(hub_options);
  ::setenv("HF_TOKEN", "hf_env_token", 1);
  EXPECT_EQ(run(), 1);
  for (const HubRequest& request : hub_->requests()) EXPECT_EQ(request.header("authorization"), "");
  auto o = options();
  o.send_token = true;
  EXPECT_EQ(run(o), 0) << message_;
  ::unsetenv("HF_TOKEN");
}

TEST_F(FetchSecurity, HostileNamesWriteNothing) {
  start_hub();
  for (const char* name : {"../x.bin", "/tmp/x.bin", "a/../../x.bin", "a\\\\..\\\\x.bin", ".tierpack/x", "a//b", "C:/x", "x\\u0000y", "x\\ny"}) {
    hub_->clear_faults();
    serve_tree(std::string(R"([{"type":"file","path":")") + name +
               R"(","size":3,"oid":"0123456789012345678901234567890123456789"}])");
    EXPECT_EQ(run(), 3) << name;
    EXPECT_FALSE(fs::exists(target())) << name;
    EXPECT_FALSE(fs::exists(target().parent_path() / "x.bin")) << name;
  }
}

TEST_F(FetchSecurity, PlantedLinksInTheTargetAreNotFollowed) {
  start_hub();
  const fs::path victim = root() / "victim";
  write_text(victim, "precious");
  fs::create_directories(target());
  fs::create_symlink(victim, target() / "model.bin");
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(read_text(victim), "precious");
  fs::remove(target() / "model.bin");

  fs::remove_all(target());
  fs::create_directories(target());
  fs::create_directory_symlink(root(), target() / ".tierpack");
  EXPECT_EQ(run(), 1);
  EXPECT_FALSE(exists("model.bin"));
}

TEST_F(FetchSecurity, LinkedSubdirectoriesAreNotWrittenInto) {
  write_text(root() / "o/m/sub/x.bin", "inside");
  start_hub();
  fs::create_directories(target());
  fs::create_directories(root() / "elsewhere");
  fs::create_directory_symlink(root() / "elsewhere", target() / "sub");
  EXPECT_EQ(run(), 1);
  EXPECT_FALSE(fs::exists(root() / "elsewhere/x.bin"));
}

TEST_F(FetchSecurity, OddThingsUnderTheFinalName) {
  start_hub();
  fs::create_directories(target() / "model.bin");
  EXPECT_EQ(run(), 1);
  fs::remove(target() / "model.bin");
  ASSERT_EQ(::mkfifo((target() / "model.bin").c_str(), 0600), 0);
  EXPECT_EQ(run(), 1);
}

TEST_F(FetchSecurity, ARealmElsewhereGetsNothing) {
  start_hub();
  Fault f = fault("/manifests/", "status");
  f.status = 401;
  f.headers = {{"WWW-Authenticate", "Bearer realm=\"http://127.0.0.1:9/token\",service=\"x\""}};
  hub_->add_fault(f);
  auto o = options();
  o.reference = "ollama:o/m:latest";
  EXPECT_EQ(run(o), 1);
  EXPECT_NE(message_.find("not its own host"), std::string::npos) << message_;
}

TEST_F(FetchSecurity, ARealmElsewhereForOneBlobDoesNotStopTheOthers) {
  start_hub();
  Fault f = status("/blobs/sha256:" + Sha256::of(as_bytes(model_)).hex(), 401, -1);
  f.headers = {{"WWW-Authenticate", "Bearer realm=\"http://127.0.0.1:9/token\",service=\"x\""}};
  hub_->add_fault(f);
  auto o = options();
  o.reference = "ollama:o/m:latest";
  o.connections = "1";
  EXPECT_EQ(run(o), 1);
  EXPECT_EQ(message_, "");  // the run went to its end
  EXPECT_FALSE(exists("model.bin"));
  EXPECT_TRUE(exists("config.json"));
}

TEST_F(FetchSecurity, ANextPageElsewhereIsRefused) {
  start_hub();
  Fault f = fault("/tree/", "status");
  f.status = 200;
  f.text = "[]";
  f.headers = {{"Link", "<http://127.0.0.1:9/next>; rel=\"next\""}};
  hub_->add_fault(f);
  EXPECT_EQ(run(), 3);
}

TEST_F(FetchSecurity, MessagesOfServersCannotDriveTheTerminal) {
  start_hub();
  Fault f = fault("/api/models", "status");
  f.status = 403;
  f.text = "{\"error\":\"\\u001b]0;owned\\u0007\"}";
  hub_->add_fault(f);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(message_.find('\x1b'), std::string::npos);
}

TEST_F(FetchSecurity, TokensThatAHubRepeatsAreRedacted) {
  HubOptions hub_options;
  hub_options.token = "hf_secret_token";
  start_hub(hub_options);
  write_text(root() / "token", "hf_secret_token\n");
  ::chmod((root() / "token").c_str(), 0600);
  auto o = options();
  o.token_file = (root() / "token").string();
  Fault f = status("/api/models", 403);
  f.headers = {{"X-Error-Message", "no access with hf_secret_token"}};
  hub_->add_fault(f);
  EXPECT_EQ(run(o), 1);
  EXPECT_NE(message_.find("no access with ***"), std::string::npos) << message_;
  f.match = "/resolve/";
  f.times = -1;
  hub_->add_fault(f);
  o.json = true;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(o), 1);
  const std::string said = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("***"), std::string::npos) << said;
  EXPECT_EQ(said.find("hf_secret_token"), std::string::npos) << said;
}

TEST_F(FetchSecurity, AGatedRepositorySaysWhatToDo) {
  HubOptions hub_options;
  hub_options.token = "hf_right";
  start_hub(hub_options);
  EXPECT_EQ(run(), 1);
  for (const char* word : {"hf:o/m", "gated", "accept", "HF_TOKEN"}) EXPECT_NE(message_.find(word), std::string::npos) << message_;
  Fault f = status("/api/models", 401);
  f.text = R"({"error":"Invalid credentials in Authorization header"})";
  hub_->add_fault(f);
  EXPECT_EQ(run(), 1);
  EXPECT_NE(message_.find("token is not valid"), std::string::npos) << message_;
}

TEST_F(FetchSecurity, AGatedFileSaysSoWhateverItsChallengeSays) {
  start_hub();
  Fault f = status("/resolve/", 401, -1);
  f.headers = {{"WWW-Authenticate", "Bearer realm=\"Authentication required\", charset=\"UTF-8\""}, {"X-Error-Code", "GatedRepo"}};
  hub_->add_fault(f);
  auto o = options();
  o.json = true;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run(o), 1) << message_;
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("accept the terms"), std::string::npos) << said;
  EXPECT_EQ(said.find("not its own host"), std::string::npos) << said;
}

TEST_F(FetchSecurity, NamesInAMistakesMessageCannotDriveTheTerminal) {
  start_hub();
  serve_tree(R"([{"type":"file","path":"\u001b]0;owned\u0007","size":3,"oid":"0123456789012345678901234567890123456789"}])");
  auto o = options();
  o.selection.include = {"model.bin"};
  EXPECT_EQ(run(o), 2);
  EXPECT_NE(message_.find("owned"), std::string::npos) << message_;
  EXPECT_EQ(message_.find('\x1b'), std::string::npos);
}

TEST_F(FetchSecurity, AForbiddenFileDoesNotStopTheOthers) {
  write_text(root() / "o/m/other.bin", noise(5000, 8));
  start_hub();
  hub_->add_fault(status("/resolve/" + hub_->commit("o/m") + "/model.bin", 403, -1));
  EXPECT_EQ(run(), 1);
  EXPECT_FALSE(exists("model.bin"));
  EXPECT_TRUE(fetched("other.bin") == noise(5000, 8));
  EXPECT_TRUE(exists("config.json"));
}

TEST_F(FetchSecurity, WhatTheHubsClientLeftInARepositoryIsNotFetched) {
  write_text(root() / "o/m/.cache/huggingface/download/x.metadata", "abc");
  start_hub();
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_FALSE(exists(".cache"));
  // Any other name in a place of ours or of git is refused, whatever its case.
  for (const char* name : {".git/config", "sub/.GIT/config", ".TierPack/x", "Tierpack.lock.JSON"}) {
    hub_->clear_faults();
    serve_tree(std::string(R"([{"type":"file","path":")") + name +
               R"(","size":3,"oid":"0123456789012345678901234567890123456789"}])");
    EXPECT_EQ(run(), 3) << name;
  }
}

TEST_F(FetchSecurity, NamesThatCollideWhereCaseIsIgnoredAreRefused) {
  write_text(root() / "o/m/Model.bin", "x");
  start_hub();
  EXPECT_EQ(run(), 3);
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(FetchSecurity, TheImplicitTokenCanBeTurnedOff) {
  start_hub();
  ::setenv("HF_TOKEN", "hf_env", 1);
  ::setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
  auto o = options();
  o.send_token = true;
  EXPECT_EQ(run(o), 0) << message_;
  for (const HubRequest& request : hub_->requests()) EXPECT_EQ(request.header("authorization"), "");
  ::unsetenv("HF_TOKEN");
  ::unsetenv("HF_HUB_DISABLE_IMPLICIT_TOKEN");
}

}  // namespace
}  // namespace tierpack::support
