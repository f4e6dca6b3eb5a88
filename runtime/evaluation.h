// What a run of logits says: perplexity on the tokens it predicts, distance from the logits of another run, and a
// fingerprint of its bits. Fed row by row; nothing is kept but sums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/file.h"

namespace tierpack {

// A file that appears under its name only when finish() was called; before that it is NAME.part, removed on failure.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(Bytes data) { writer_->write(data); }
  void finish();

 private:
  std::filesystem::path path_;
  std::filesystem::path part_;
  std::optional<File> file_;
  std::optional<BufferedWriter> writer_;
};

struct LogitsDistance {
  double mean_kl = 0;         // mean over rows of KL(reference || run), nats
  double max_kl = 0;
  double max_difference = 0;  // of two logits
  double same_top = 0;        // share of rows whose largest logit is at the same token
};

class Evaluation {
 public:
  // `logits_out` and `kl_against` are raw little-endian f32 (rows, vocab); empty = none. The reference must have exactly
  // `rows` rows: kUsage otherwise.
  Evaluation(uint32_t vocab, uint64_t rows, const std::filesystem::path& logits_out,
             const std::filesystem::path& kl_against);
  ~Evaluation();

  // The next row. `next` is the token that follows in the text, none after the last of a window.
  void add(std::span<const float> logits, std::optional<uint32_t> next);
  // After the last row.
  void finish();

  uint64_t rows() const { return rows_; }
  Xxh128 fingerprint() const { return hash_.digest(); }  // of the rows' bytes
  uint64_t predicted() const { return predicted_; }
  double mean_loss() const;    // nats a predicted token
  double perplexity() const;   // e^mean_loss
  const std::optional<LogitsDistance>& distance() const { return distance_; }

 private:
  void compare(std::span<const float> logits);
  uint32_t vocab_;
  uint64_t expected_rows_;
  std::unique_ptr<OutputFile> out_;
  std::optional<File> reference_;
  std::vector<float> reference_row_;
  std::optional<LogitsDistance> distance_;  // sums until finish()
  Xxh3Stream hash_;
  uint64_t rows_ = 0;
  uint64_t predicted_ = 0;
  double loss_ = 0;
};

// Token ids as decimal numbers separated by white space. Throws kUsage naming the place of anything else.
std::vector<uint32_t> parse_token_ids(std::string_view text, const std::string& source);

}  // namespace tierpack
