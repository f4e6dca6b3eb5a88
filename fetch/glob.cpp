#include "fetch/glob.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace tierpack::fetch {

namespace {

// Matches the set at pattern[0] == '[' against c; nullopt if it is not a set (then '[' is literal). `used` is its length.
std::optional<bool> match_set(std::string_view pattern, char c, size_t& used) {
  size_t at = 1;
  const bool negated = at < pattern.size() && pattern[at] == '!';
  if (negated) ++at;
  const size_t first = at;
  bool found = false;
  for (; at < pattern.size(); ++at) {
    if (pattern[at] == ']' && at > first) {
      used = at + 1;
      return found != negated;
    }
    if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']') {
      found = found || (pattern[at] <= c && c <= pattern[at + 2]);
      at += 2;
    } else {
      found = found || pattern[at] == c;
    }
  }
  return std::nullopt;
}

std::string normalised(std::string_view pattern) {
  std::string out(pattern);
  std::replace(out.begin(), out.end(), '\\', '/');
  if (!out.empty() && out.back() == '/') out += '*';
  return out;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, change});
    }
  }
  return row.back();
}

}  // namespace

// Greedy with one point of return (the last '*'), hence linear in practice and quadratic at worst.
bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t star_text = 0;
  while (t < text.size()) {
    bool matched = false;
    size_t used = 1;
    if (p < pattern.size()) {
      if (pattern[p] == '*') {
        star = p++;
        star_text = t;
        continue;
      }
      if (pattern[p] == '[') {
        const auto set = match_set(pattern.substr(p), text[t], used);
        if (!set) used = 1;
        matched = set.value_or(text[t] == '[');
      } else {
        matched = pattern[p] == '?' || pattern[p] == text[t];
      }
    }
    if (matched) {
      p += used;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string glob_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '*' || c == '?' || c == '[') {
      out += std::string("[") + c + "]";
    } else {
      out += c;
    }
  }
  return out;
}

bool Selection::selects(std::string_view path) const {
  const auto matches = [&](const std::string& pattern) { return glob_match(normalised(pattern), path); };
  if (!include.empty() && std::none_of(include.begin(), include.end(), matches)) return false;
  return std::none_of(exclude.begin(), exclude.end(), matches);
}

std::vector<std::string> nearest_names(std::string_view pattern, const std::vector<std::string>& names, size_t count) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& name : names) {
    if (ranked.size() >= 10000) break;
    ranked.emplace_back(edit_distance(pattern.substr(0, 200), std::string_view(name).substr(0, 200)), name);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(count, ranked.size()); ++i) out.push_back(ranked[i].second);
  return out;
}

}  // namespace tierpack::fetch
