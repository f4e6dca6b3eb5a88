// CSV files of counts and traces: see formats/profile_import.h and docs/profiles.md.
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "formats/profile_import.h"

namespace tierpack {
namespace {

constexpr size_t kColumnsMax = 4096;

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Lines of fields. Blank lines and those that begin with '#' are passed over.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& source) : rest_(text), source_(source) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
  }

  // False at the end.
  bool next() {
    while (!rest_.empty()) {
      const size_t end = rest_.find('\n');
      const std::string_view line = trimmed(rest_.substr(0, end));
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      ++line_;
      if (line.empty() || line.front() == '#') continue;
      split(line);
      return true;
    }
    return false;
  }

  const std::vector<std::string_view>& fields() const { return fields_; }

  uint64_t number(size_t field) const {
    const std::string_view text = fields_[field];
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      fail_here(fmt::format("'{}' is not a number", printable(text, 40)));
    }
    return value;
  }

  [[noreturn]] void fail_here(const std::string& problem) const {
    fail(ErrorKind::kCorrupt, "{}: line {}: {}", source_, line_, problem);
  }

  [[noreturn]] void refuse_here(const std::string& problem) const {
    fail(ErrorKind::kUsage, "{}: line {}: {}", source_, line_, problem);
  }

 private:
  void split(std::string_view line) {
    fields_.clear();
    for (;;) {
      const size_t comma = line.find(',');
      fields_.push_back(trimmed(line.substr(0, comma)));
      if (fields_.size() > kColumnsMax) fail_here("too many columns");
      if (comma == std::string_view::npos) return;
      line.remove_prefix(comma + 1);
    }
  }

  std::string_view rest_;
  const std::string& source_;
  uint64_t line_ = 0;
  std::vector<std::string_view> fields_;
};

// What both forms share: cells of the model's layers, and which layers the file spoke of.
class CellCounter {
 public:
  CellCounter(const ProfileTarget& target, const CsvReader& reader)
      : target_(target), reader_(reader), seen_(target.identity.layers) {}

  // Index of the cell; nullopt for a block that drafts tokens. Other layers and experts are refused.
  std::optional<size_t> cell(uint64_t layer, uint64_t expert) {
    const Profile& p = target_.identity;
    const auto at = std::lower_bound(target_.layers.begin(), target_.layers.end(), layer,
                                     [](const ProfileTarget::Layer& l, uint64_t wanted) { return l.layer < wanted; });
    if (at == target_.layers.end() || at->layer != layer) {
      reader_.refuse_here(
          fmt::format("layer {} has no routed experts in {}, which has {} layers", layer, target_.model, p.layers));
    }
    if (expert >= p.experts) {
      reader_.refuse_here(
          fmt::format("expert {}; {} has {} a layer, numbered from 0", expert, target_.model, p.experts));
    }
    if (layer >= p.layers) return std::nullopt;
    seen_[layer] = true;
    largest_expert_ = std::max(largest_expert_, expert);
    return static_cast<size_t>(layer * p.experts + expert);
  }

  void require_all_layers(const std::string& source) const {
    for (const ProfileTarget::Layer& layer : target_.layers) {
      if (layer.layer < target_.identity.layers && !seen_[layer.layer]) {
        fail(ErrorKind::kUsage, "{}: nothing about layer {}: the file is of another model than {}, or not complete",
             source, layer.layer, target_.model);
      }
    }
  }

  uint64_t largest_expert() const { return largest_expert_; }

 private:
  const ProfileTarget& target_;
  const CsvReader& reader_;
  std::vector<bool> seen_;
  uint64_t largest_expert_ = 0;
};

void add(uint64_t& sum, uint64_t count, const CsvReader& reader) {
  const auto more = checked_add(sum, count);
  if (!more || *more > uint64_t{1} << 53) reader.fail_here("the counts are too large");
  sum = *more;
}

// Tokens behind the counts of one workload: of the layer that was routed to most.
uint64_t tokens_of(const std::vector<uint64_t>& counts, const Profile& model) {
  uint64_t tokens = 0;
  for (size_t first = 0; first < counts.size(); first += model.experts) {
    uint64_t routed = 0;
    for (size_t e = first; e < first + model.experts; ++e) routed += counts[e];
    tokens = std::max(tokens, (routed + model.used - 1) / model.used);
  }
  return tokens;
}

// Columns of a table of counts. One named "all" or "total" beside others is their sum and not a workload.
struct Workload {
  std::string name;
  size_t field = 0;
  std::vector<uint64_t> counts;
};

void read_table(const ProfileTarget& target, CsvReader& reader, std::vector<Workload>& workloads,
                std::optional<size_t> sum_field, const std::string& source) {
  const size_t columns = reader.fields().size();
  CellCounter cells(target, reader);
  std::vector<bool> filled(target.identity.counts.size());
  while (reader.next()) {
    if (reader.fields().size() != columns) {
      reader.fail_here(fmt::format("{} columns; the header has {}", reader.fields().size(), columns));
    }
    const std::optional<size_t> at = cells.cell(reader.number(0), reader.number(1));
    uint64_t row_sum = 0;
    for (Workload& workload : workloads) {
      const uint64_t count = reader.number(workload.field);
      add(row_sum, count, reader);
      if (at) add(workload.counts[*at], count, reader);
    }
    if (sum_field && reader.number(*sum_field) != row_sum) {
      reader.fail_here(fmt::format("the sum is {}; the workloads add up to {}", reader.number(*sum_field), row_sum));
    }
    if (!at) continue;
    if (filled[*at]) reader.fail_here("this layer and expert came before");
    filled[*at] = true;
  }
  cells.require_all_layers(source);
  if (cells.largest_expert() + 1 != target.identity.experts) {
    fail(ErrorKind::kUsage, "{}: experts 0 to {} occur; {} has {} a layer: the file is of another model", source,
         cells.largest_expert(), target.model, target.identity.experts);
  }
}

void read_trace(const ProfileTarget& target, CsvReader& reader, Workload& workload, const std::string& source) {
  const size_t columns = reader.fields().size();
  const size_t experts = columns - 2;
  if (experts > target.identity.used) {
    reader.refuse_here(
        fmt::format("{} experts a row; {} uses {} a token", experts, target.model, target.identity.used));
  }
  CellCounter cells(target, reader);
  while (reader.next()) {
    if (reader.fields().size() != columns) {
      reader.fail_here(fmt::format("{} columns; the header has {}", reader.fields().size(), columns));
    }
    reader.number(0);
    const uint64_t layer = reader.number(1);
    for (size_t i = 2; i < columns; ++i) {
      const uint64_t expert = reader.number(i);
      for (size_t j = 2; j < i; ++j) {
        if (reader.number(j) == expert) reader.fail_here(fmt::format("expert {} occurs twice", expert));
      }
      if (const auto at = cells.cell(layer, expert)) add(workload.counts[*at], 1, reader);
    }
  }
  cells.require_all_layers(source);
}

}  // namespace

ImportedProfile import_csv_counts(const ProfileTarget& target, std::string_view text, const std::string& source,
                                  const std::string& corpus_name) {
  CsvReader reader(text, source);
  if (!reader.next()) fail(ErrorKind::kCorrupt, "{}: it holds no lines", source);
  const std::vector<std::string_view> header = reader.fields();
  const bool table = header.size() >= 3 && header[0] == "layer" && header[1] == "expert";
  const bool trace = header.size() >= 3 && header[0] == "token" && header[1] == "layer";
  if (!table && !trace) {
    reader.fail_here("expected the header 'layer,expert,count' of a table or 'token,layer,expert' of a trace");
  }
  std::vector<Workload> workloads;
  std::optional<size_t> sum_field;
  if (trace) {
    workloads.push_back({corpus_name, 0, target.identity.counts});
    read_trace(target, reader, workloads.front(), source);
  } else {
    const size_t bytes = header.size() * target.identity.counts.size() * sizeof(uint64_t);
    if (bytes > size_t{1} << 30) reader.fail_here("too many columns for a model of this size");
    for (size_t i = 2; i < header.size(); ++i) {
      if (header.size() > 3 && (header[i] == "all" || header[i] == "total") && !sum_field) {
        sum_field = i;
        continue;
      }
      const bool one = header.size() == 3;
      workloads.push_back(
          {one ? corpus_name : corpus_name + ":" + printable(header[i], 80), i, target.identity.counts});
    }
    read_table(target, reader, workloads, sum_field, source);
  }

  ImportedProfile out{target.identity, {}};
  Profile& p = out.profile;
  const Sha256Digest sha256 = Sha256::of(as_bytes(text));
  for (const Workload& workload : workloads) {
    const uint64_t tokens = tokens_of(workload.counts, p);
    if (tokens == 0) {
      out.notes.push_back(fmt::format("{}: no expert was used", workload.name));
      continue;
    }
    p.corpora.push_back({workload.name, sha256, tokens});
    for (size_t i = 0; i < p.counts.size(); ++i) p.counts[i] += workload.counts[i];  // each below 2^53
  }
  if (p.corpora.empty()) fail(ErrorKind::kUsage, "{}: every count is 0", source);
  for (size_t i = 0; i < p.counts.size(); ++i) p.weights[i] = static_cast<double>(p.counts[i]) / p.used;
  return out;
}

}  // namespace tierpack
