#include "runtime/text/special_tokens.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace tierpack::text {

void SpecialTokens::add(std::string_view text, uint32_t id) {
  TIERPACK_CHECK(!text.empty() && text.size() <= kMaxBytes);
  uint32_t node = 0;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    const auto [edge, added] = edges_.emplace(uint64_t{node} << 8 | byte, static_cast<uint32_t>(token_of_node_.size()));
    if (added) token_of_node_.push_back(kNone);
    node = edge->second;
  }
  token_of_node_[node] = id;
  starts_[static_cast<uint8_t>(text[0])] = true;
}

std::vector<SpecialTokens::Match> SpecialTokens::find(std::string_view text) const {
  std::vector<Match> all;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!starts_[static_cast<uint8_t>(text[at])]) continue;
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (token_of_node_[node] != kNone) all.push_back({at, i + 1, token_of_node_[node]});
    }
  }
  if (all.size() < 2) return all;

  // Longest first, then by position: a match counts unless it overlaps one that counted before.
  std::stable_sort(all.begin(), all.end(),
                   [](const Match& a, const Match& b) { return a.end - a.begin > b.end - b.begin; });
  const auto by_begin = [](const Match& a, const Match& b) { return a.begin < b.begin; };
  std::set<Match, decltype(by_begin)> taken(by_begin);
  for (const Match& match : all) {
    const auto after = taken.lower_bound(match);
    if (after != taken.end() && after->begin < match.end) continue;
    if (after != taken.begin() && std::prev(after)->end > match.begin) continue;
    taken.insert(after, match);
  }
  return {taken.begin(), taken.end()};
}

}  // namespace tierpack::text
