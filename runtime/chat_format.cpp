#include "runtime/chat_format.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace tierpack {

namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";

std::string template_source(const Metadata& metadata) {
  if (!ChatFormat::available(metadata)) {
    fail(ErrorKind::kUsage, "{}: the model brings no chat template; use it with bare text (run --raw, /v1/completions)",
         metadata.source());
  }
  return metadata.string(kTemplateKey);
}

void put_bos(const text::Tokenizer& tokenizer, std::vector<uint32_t>& ids) {
  if (!tokenizer.adds_bos() || tokenizer.bos() < 0) return;
  const auto bos = static_cast<uint32_t>(tokenizer.bos());
  if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
}

size_t first_character_bytes(std::string_view text) {
  size_t n = 1;
  while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) ++n;
  return n;
}

// Applies `change` to every string inside `value`, the keys of objects included.
template <typename Change>
void change_strings(Json& value, const Change& change) {
  if (value.is_string()) {
    value = change(value.get<std::string>());
  } else if (value.is_array()) {
    for (auto& item : value) change_strings(item, change);
  } else if (value.is_object()) {
    Json changed = Json::object();
    for (auto& [key, item] : value.items()) {
      change_strings(item, change);
      changed[change(key)] = std::move(item);
    }
    value = std::move(changed);
  }
}

bool is_system(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "system";
}

// Joins the system messages that `messages` begins with, and returns how many messages that leaves at the front (0 or
// 1).
size_t join_leading_system(Json& messages) {
  size_t count = 0;
  while (count < messages.size() && is_system(messages[count]) && messages[count].contains("content") &&
         messages[count]["content"].is_string()) {
    ++count;
  }
  if (count < 2) return count;
  std::string text = messages[0]["content"].get<std::string>();
  for (size_t i = 1; i < count; ++i) text += "\n\n" + messages[i]["content"].get<std::string>();
  Json joined = Json::array({{{"role", "system"}, {"content", std::move(text)}}});
  for (size_t i = count; i < messages.size(); ++i) joined.push_back(std::move(messages[i]));
  messages = std::move(joined);
  return 1;
}

// A template's answer to variables it may refuse.
std::optional<std::string> try_render(const text::ChatTemplate& chat_template, const Json& variables) {
  try {
    return chat_template.render(variables.dump());
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    return std::nullopt;
  }
}

// Renders a conversation with system messages after the front: as they are if the template takes notice of them, else
// as the user's.
std::string render_late_system(const text::ChatTemplate& chat_template, Json variables, size_t front) {
  Json without = variables;
  without["messages"] = Json::array();
  Json as_user = variables;
  for (size_t i = 0; i < variables["messages"].size(); ++i) {
    const bool late = i >= front && is_system(variables["messages"][i]);
    if (late) {
      as_user["messages"][i]["role"] = "user";
    } else {
      without["messages"].push_back(variables["messages"][i]);
    }
  }
  const std::optional<std::string> text = try_render(chat_template, variables);
  if (text && text != try_render(chat_template, without)) return *text;
  return chat_template.render(as_user.dump());
}

std::string without(std::string_view text, std::string_view mark) {
  std::string out;
  size_t from = 0;
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, from)) {
    out.append(text, from, at - from);
    from = at + mark.size();
  }
  return out.append(text, from);
}

// A noncharacter that the conversation does not contain.
std::string unused_mark(std::string_view text) {
  for (char last = '\x90'; last != '\xB0'; ++last) {  // U+FDD0 .. U+FDEF
    const std::string mark = {'\xEF', '\xB7', last};
    if (text.find(mark) == std::string_view::npos) return mark;
  }
  fail(ErrorKind::kUsage, "the conversation contains every noncharacter from U+FDD0 to U+FDEF; remove one of them");
}

}  // namespace

bool ChatFormat::available(const Metadata& metadata) { return metadata.has(kTemplateKey); }

ChatFormat::ChatFormat(const Metadata& metadata, const text::Tokenizer& tokenizer)
    : tokenizer_(&tokenizer), template_(template_source(metadata)), thinks_(tokenizer.find("<think>") >= 0) {
  const auto text_of = [&](int64_t id) {
    if (id < 0) return std::string();
    const uint32_t one[] = {static_cast<uint32_t>(id)};
    return tokenizer.decode(one, true);
  };
  bos_ = text_of(tokenizer.bos());
  eos_ = text_of(tokenizer.eos());
  for (uint32_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.is_control(id)) continue;
    std::string text = text_of(id);
    // A token of one character cannot be broken by a mark inside it.
    if (text.empty() || first_character_bytes(text) == text.size()) continue;
    const char first = text.front();
    controls_[first].push_back({std::move(text), id});
  }
  for (auto& [first, list] : controls_) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Control& a, const Control& b) { return a.text.size() > b.text.size(); });
  }
}

size_t ChatFormat::control_at(std::string_view text, size_t position, uint32_t& id) const {
  const auto list = controls_.find(text[position]);
  if (list == controls_.end()) return 0;
  for (const Control& control : list->second) {
    if (text.substr(position).starts_with(control.text)) {
      id = control.id;
      return control.text.size();
    }
  }
  return 0;
}

// Puts `mark` after the first character of everything that spells a control token.
std::string ChatFormat::guard(std::string text, std::string_view mark) const {
  std::string out;
  uint32_t id = 0;
  size_t copied = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (control_at(text, at, id) == 0) continue;
    const size_t cut = at + first_character_bytes(std::string_view(text).substr(at));
    out.append(text, copied, cut - copied);
    out += mark;
    copied = cut;
  }
  if (copied == 0) return text;
  return out.append(text, copied);
}

std::string ChatFormat::render(std::string_view variables_json, std::string& mark) const {
  Json variables = parse_json(variables_json, "chat template variables", {.max_depth = 128});
  variables["bos_token"] = bos_;
  variables["eos_token"] = eos_;
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
  size_t front = 0;
  bool late_system = false;
  if (const auto messages = variables.find("messages"); messages != variables.end() && messages->is_array()) {
    front = join_leading_system(*messages);
    late_system = std::any_of(messages->begin() + static_cast<ptrdiff_t>(front), messages->end(), is_system);
  }
  mark = unused_mark(variables.dump());
  for (const char* key : {"messages", "tools", "documents"}) {
    if (const auto found = variables.find(key); found != variables.end()) {
      change_strings(*found, [&](std::string text) { return guard(std::move(text), mark); });
    }
  }
  return late_system ? render_late_system(template_, std::move(variables), front) : template_.render(variables.dump());
}

std::vector<uint32_t> ChatFormat::encode_guarded(std::string_view text, std::string_view mark) const {
  if (text.find(mark) == std::string_view::npos) return tokenizer_->encode(text, text::Tokenizer::Special::kParse);
  std::vector<uint32_t> ids;
  const auto encode_plain = [&](std::string_view piece) {
    const std::vector<uint32_t> part = tokenizer_->encode(without(piece, mark), text::Tokenizer::Special::kAsText);
    ids.insert(ids.end(), part.begin(), part.end());
  };
  size_t from = 0;
  for (size_t at = 0; at < text.size();) {
    uint32_t id = 0;
    const size_t length = control_at(text, at, id);
    if (length == 0) {
      ++at;
      continue;
    }
    if (at > from) encode_plain(text.substr(from, at - from));
    ids.push_back(id);
    at += length;
    from = at;
  }
  if (from < text.size()) encode_plain(text.substr(from));
  return ids;
}

std::string ChatFormat::text(std::string_view variables_json) const {
  std::string mark;
  const std::string text = render(variables_json, mark);
  return without(text, mark);
}

ChatPrompt ChatFormat::prompt(std::string_view variables_json) const {
  std::string mark;
  const std::string text = render(variables_json, mark);
  ChatPrompt result;
  result.ids = encode_guarded(text, mark);
  put_bos(*tokenizer_, result.ids);
  if (thinks_) result.reasoning = ReasoningSplitter::after_prompt(text);
  return result;
}

}  // namespace tierpack
