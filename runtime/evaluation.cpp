#include "runtime/evaluation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "base/error.h"

namespace tierpack {

namespace {

// log(sum of e^x).
double log_sum_exp(std::span<const float> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float value : x) sum += std::exp(static_cast<double>(value) - top);
  return top + std::log(sum);
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path), part_(path.string() + ".part") {
  file_ = File::open(part_, File::Mode::kCreateOrTruncate);
  writer_.emplace(*file_);
}

OutputFile::~OutputFile() {
  if (!file_) return;
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
}

void OutputFile::finish() {
  writer_->flush();
  file_->sync();
  file_->close();
  rename_durably(part_, path_);
  writer_.reset();
  file_.reset();
}

Evaluation::Evaluation(uint32_t vocab, uint64_t rows, const std::filesystem::path& logits_out,
                       const std::filesystem::path& kl_against)
    : vocab_(vocab), expected_rows_(rows) {
  if (!kl_against.empty()) {
    reference_ = File::open(kl_against, File::Mode::kRead);
    const uint64_t row = uint64_t{vocab} * sizeof(float);
    if (reference_->size() != rows * row) {
      fail(ErrorKind::kUsage, "{}: {} bytes cannot be the logits to compare with; expected {} rows of {} f32 values, {} "
           "bytes", kl_against.string(), reference_->size(), rows, vocab, rows * row);
    }
    reference_row_.resize(vocab);
    distance_.emplace();
  }
  if (!logits_out.empty()) out_ = std::make_unique<OutputFile>(logits_out);
}

Evaluation::~Evaluation() = default;

void Evaluation::add(std::span<const float> logits, std::optional<uint32_t> next) {
  TIERPACK_CHECK(logits.size() == vocab_ && rows_ < expected_rows_);
  const Bytes bytes = std::as_bytes(logits);
  hash_.update(bytes);
  if (out_) out_->write(bytes);
  if (next) {
    ++predicted_;
    loss_ += log_sum_exp(logits) - static_cast<double>(logits[*next]);
  }
  if (reference_) compare(logits);
  ++rows_;
}

void Evaluation::compare(std::span<const float> logits) {
  reference_->read_at(rows_ * vocab_ * sizeof(float), std::as_writable_bytes(std::span(reference_row_)));
  const std::span<const float> reference(reference_row_);
  for (const float value : reference) {
    if (!std::isfinite(value)) {
      fail(ErrorKind::kUsage, "{}: row {} holds a value that is not finite; these are not logits", reference_->name(), rows_);
    }
  }
  const double log_reference = log_sum_exp(reference);
  const double log_run = log_sum_exp(logits);
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - log_reference;
    const double log_q = static_cast<double>(logits[i]) - log_run;
    kl += std::exp(log_p) * (log_p - log_q);
    distance_->max_difference =
        std::max(distance_->max_difference, std::fabs(static_cast<double>(reference[i]) - static_cast<double>(logits[i])));
  }
  distance_->mean_kl += kl;
  distance_->max_kl = std::max(distance_->max_kl, kl);
  const auto top = [](std::span<const float> x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
  if (top(reference) == top(logits)) distance_->same_top += 1;
}

void Evaluation::finish() {
  TIERPACK_CHECK(rows_ == expected_rows_);
  if (distance_ && rows_ > 0) {
    distance_->mean_kl /= static_cast<double>(rows_);
    distance_->same_top /= static_cast<double>(rows_);
  }
  if (out_) out_->finish();
}

double Evaluation::mean_loss() const { return predicted_ == 0 ? 0 : loss_ / static_cast<double>(predicted_); }

double Evaluation::perplexity() const { return std::exp(mean_loss()); }

std::vector<uint32_t> parse_token_ids(std::string_view text, const std::string& source) {
  std::vector<uint32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    while (at != end && is_space(*at)) ++at;
    if (at == end) return ids;
    uint32_t id = 0;
    const auto [stop, problem] = std::from_chars(at, end, id);
    if (problem != std::errc() || (stop != end && !is_space(*stop))) {
      fail(ErrorKind::kUsage, "{}: number {} (at byte {}) is not a token id; expected decimal numbers separated by white "
           "space", source, ids.size() + 1, at - text.data());
    }
    ids.push_back(id);
    at = stop;
  }
}

}  // namespace tierpack
