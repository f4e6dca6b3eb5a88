#include "formats/profile_import.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace tierpack {
namespace {

using testing_support::Thrown;
using testing_support::thrown_by;

std::string stack_name(uint32_t layer, const char* part) {
  return fmt::format("blk.{}.ffn_{}_exps.weight", layer, part);
}

// Layers 1 and 2 of 3 have 4 experts each, 2 a token; block 3 drafts tokens.
ProfileTarget target() {
  ProfileTarget t;
  t.model = "tiny.tierpack";
  t.blocks = 4;
  t.identity.architecture = "qwen4exp";
  t.identity.routing_id = Sha256::of(as_bytes("routers"));
  t.identity.layers = 3;
  t.identity.experts = 4;
  t.identity.used = 2;
  t.identity.tool_version = "test";
  t.identity.counts.assign(12, 0);
  t.identity.weights.assign(12, 0);
  for (const uint32_t layer : {1u, 2u, 3u}) {
    t.layers.push_back(
        {layer, {{stack_name(layer, "gate"), 8}, {stack_name(layer, "up"), 8}, {stack_name(layer, "down"), 2}}});
  }
  t.dense = {{"blk.0.attn_q.weight", 8}, {"output.weight", 8}};
  return t;
}

Imatrix::Entry entry(const std::string& tensor, uint64_t columns, const std::vector<double>& counts) {
  return {tensor, columns, counts.size(), std::vector<float>(columns * counts.size(), 1.0f), counts};
}

Imatrix imatrix() {
  Imatrix m;
  m.source = "m.gguf";
  m.entries.push_back(entry("blk.0.attn_q.weight", 8, {20}));
  for (const uint32_t layer : {1u, 2u}) {
    const std::vector<double> counts = layer == 1 ? std::vector<double>{5, 0, 10, 5} : std::vector<double>{1, 2, 3, 14};
    m.entries.push_back(entry(stack_name(layer, "down"), 2, counts));
    m.entries.push_back(entry(stack_name(layer, "gate"), 8, counts));
    m.entries.push_back(entry(stack_name(layer, "up"), 8, counts));
  }
  return m;
}

ImportedProfile import(const Imatrix& m) {
  return import_imatrix_counts(target(), m, "m.gguf", Sha256::of(as_bytes("file")));
}

ImportedProfile import(std::string_view csv) { return import_csv_counts(target(), csv, "dir/c.csv", "c.csv"); }

TEST(ProfileImport, Imatrix) {
  const ImportedProfile found = import(imatrix());
  EXPECT_TRUE(found.notes.empty());
  const Profile& p = found.profile;
  EXPECT_EQ(p.counts, (std::vector<uint64_t>{0, 0, 0, 0, 5, 0, 10, 5, 1, 2, 3, 14}));
  EXPECT_EQ(p.weights[6], 5);
  EXPECT_EQ(p.routing_id, target().identity.routing_id);
  ASSERT_EQ(p.corpora.size(), 1u);
  EXPECT_EQ(p.corpora[0].name, "m.gguf");
  EXPECT_EQ(p.corpora[0].sha256, Sha256::of(as_bytes("file")));
  EXPECT_EQ(p.tokens(), 10u);
  EXPECT_EQ(parse_profile(encode_profile(p), "again").counts, p.counts);
}

TEST(ProfileImport, ImatrixOddities) {
  Imatrix m = imatrix();
  m.entries[3].counts[1] = 2;  // up of layer 1
  ImportedProfile found = import(m);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("layer 1"), std::string::npos) << found.notes[0];
  EXPECT_EQ(found.profile.count(1, 1), 2u);

  m = imatrix();
  m.entries.erase(m.entries.begin() + 4);  // down of layer 2
  found = import(m);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find(stack_name(2, "down")), std::string::npos) << found.notes[0];
  EXPECT_EQ(found.profile.count(2, 3), 14u);

  m = imatrix();
  m.entries.push_back(entry(stack_name(3, "up"), 8, {9, 9, 9, 9}));  // drafts tokens
  EXPECT_EQ(import(m).profile.counts, import(imatrix()).profile.counts);
}

TEST(ProfileImport, ImatrixOfAnotherModel) {
  const auto refused = [](const Imatrix& m, std::string_view part) {
    const Thrown thrown = thrown_by([&] { import(m); });
    EXPECT_EQ(thrown.kind, ErrorKind::kUsage) << part;
    EXPECT_NE(thrown.message.find(part), std::string::npos) << thrown.message;
  };
  Imatrix m = imatrix();
  m.entries[2] = entry(stack_name(1, "gate"), 8, {1, 2, 3, 4, 5});
  refused(m, "5 experts");
  m = imatrix();
  m.entries[2] = entry(stack_name(1, "gate"), 16, {1, 2, 3, 4});
  refused(m, "16 columns");
  m = imatrix();
  m.entries.resize(4);
  refused(m, "layer 2");
  m = imatrix();
  m.entries.push_back(entry("blk.4.attn_q.weight", 8, {20}));
  refused(m, "beyond the model's 4");
  m = imatrix();
  m.entries[0].columns = 16;
  refused(m, "blk.0.attn_q.weight");
  m = imatrix();
  m.entries.push_back(entry(stack_name(0, "up"), 8, {1, 2, 3, 4}));
  refused(m, stack_name(0, "up"));
  m = imatrix();
  for (Imatrix::Entry& e : m.entries) std::fill(e.counts.begin(), e.counts.end(), 7);
  refused(m, "same count");
  m = imatrix();
  m.has_expert_counts = false;
  refused(m, "older form");
  m = imatrix();
  for (Imatrix::Entry& e : m.entries) e.counts[0] = 1e30;
  EXPECT_EQ(thrown_by([&] { import(m); }).kind, ErrorKind::kCorrupt);
}

const std::string kTable = "layer,expert,count\n1,0,5\n1,1,0\n1,2,10\n1,3,5\n2,0,1\n2,1,2\n2,2,3\n2,3,14\n";

TEST(ProfileImport, TableOfCounts) {
  const ImportedProfile found = import(kTable);
  EXPECT_TRUE(found.notes.empty());
  EXPECT_EQ(found.profile.counts, import(imatrix()).profile.counts);
  EXPECT_EQ(found.profile.weights, import(imatrix()).profile.weights);
  ASSERT_EQ(found.profile.corpora.size(), 1u);
  EXPECT_EQ(found.profile.corpora[0].name, "c.csv");
  EXPECT_EQ(found.profile.corpora[0].sha256, Sha256::of(as_bytes(kTable)));
  EXPECT_EQ(found.profile.tokens(), 10u);
}

TEST(ProfileImport, FormOfLinesDoesNotMatter) {
  const std::string text =
      "\xEF\xBB\xBF# made by hand\r\n\r\n layer , expert,count\r\n2,3,14\r\n1,0,5\r\n1,2, 10\r\n1,3,5\r\n2,0,1\r\n"
      "2,1,2\r\n3,0,4\r\n2,2,3";
  EXPECT_EQ(import(text).profile.counts, import(kTable).profile.counts);
}

TEST(ProfileImport, TableOfWorkloads) {
  const ImportedProfile found =
      import("layer,expert,chat,code,none,all\n1,0,5,1,0,6\n1,3,1,3,0,4\n2,1,4,0,0,4\n2,2,2,4,0,6\n");
  EXPECT_EQ(found.profile.counts, (std::vector<uint64_t>{0, 0, 0, 0, 6, 0, 0, 4, 0, 4, 6, 0}));
  ASSERT_EQ(found.profile.corpora.size(), 2u);
  EXPECT_EQ(found.profile.corpora[0].name, "c.csv:chat");
  EXPECT_EQ(found.profile.corpora[0].tokens, 3u);
  EXPECT_EQ(found.profile.corpora[1].name, "c.csv:code");
  EXPECT_EQ(found.profile.corpora[1].tokens, 2u);
  ASSERT_EQ(found.notes.size(), 1u);
}

TEST(ProfileImport, Trace) {
  const ImportedProfile found = import("token,layer,expert,expert\n0,1,0,3\n0,2,2,1\n1,1,0,2\n1,2,2,3\n1,3,0,1\n");
  EXPECT_EQ(found.profile.counts, (std::vector<uint64_t>{0, 0, 0, 0, 2, 0, 1, 1, 0, 1, 2, 1}));
  EXPECT_EQ(found.profile.tokens(), 2u);
  // One expert a row.
  EXPECT_EQ(import("token,layer,expert\n0,1,0\n0,1,3\n0,2,2\n0,2,1\n1,1,0\n1,1,2\n1,2,2\n1,2,3\n").profile.counts,
            found.profile.counts);
}

TEST(ProfileImport, BadCsv) {
  const auto kind_of = [](std::string_view csv) { return thrown_by([&] { import(csv); }).kind; };
  const auto edited = [](std::string_view from, std::string_view to) {
    std::string text = kTable;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text :
       {std::string(), std::string("\n\n"), std::string("1,0,5\n"), std::string("expert,layer,count\n"),
        std::string("layer,expert\n1,0\n"), edited("1,0,5", "1,0"), edited("1,0,5", "1,0,5,6"),
        edited("1,0,5", "1,0,-5"), edited("1,0,5", "1,0,5.5"), edited("1,0,5", "1,0,"), edited("1,0,5", "1,0,0x5"),
        edited("1,0,5", "1,0,18446744073709551616"), edited("1,0,5", "1,0,18446744073709551615"),
        edited("1,0,5", "1,2,5"), std::string("layer,expert,a,all\n1,0,5,6\n"),
        std::string("token,layer,expert,expert\n0,1,2,2\n"), std::string("token,layer,expert\nx,1,2\n")}) {
    EXPECT_EQ(kind_of(text), ErrorKind::kCorrupt) << text;
  }
  for (const std::string& text :
       {edited("1,0,5", "0,0,5"), edited("1,0,5", "4,0,5"), edited("1,0,5", "1,4,5"),
        edited("1,0,5", "18446744073709551615,0,5"), std::string("layer,expert,count\n1,3,2\n"),
        std::string("layer,expert,count\n1,0,2\n2,0,2\n"), std::string("layer,expert,count\n1,3,0\n2,3,0\n"),
        std::string("token,layer,a,b,c\n0,1,0,1,2\n"), std::string("token,layer,expert\n0,1,2\n")}) {
    EXPECT_EQ(kind_of(text), ErrorKind::kUsage) << text;
  }
  std::string wide = "layer,expert";
  for (int i = 0; i < 5000; ++i) wide += ",a";
  EXPECT_EQ(kind_of(wide), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace tierpack
