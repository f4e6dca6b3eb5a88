#include "runtime/text/chat_template.h"

#include <ctime>
#include <utility>

#include "base/error.h"
#include "runtime/text/template_evaluator.h"
#include "runtime/text/template_json.h"
#include "runtime/text/template_parser.h"
#include "runtime/text/utf8.h"

namespace tierpack::text {

namespace {

// Real templates are below 100 KiB and take some thousand steps for each message.
constexpr size_t kMaxSourceBytes = 4 << 20;
constexpr size_t kMaxRenderBytes = 256 << 20;
constexpr uint64_t kMaxSteps = 50'000'000;

}  // namespace

struct ChatTemplate::Impl {
  jinja::Template parsed;
};

ChatTemplate::ChatTemplate(std::string source) : impl_(std::make_unique<Impl>()) {
  if (source.size() > kMaxSourceBytes) {
    fail(ErrorKind::kUnsupported, "the chat template has {} bytes, at most {} are supported", source.size(),
         kMaxSourceBytes);
  }
  if (!is_valid_utf8(source)) fail(ErrorKind::kCorrupt, "the chat template is not valid UTF-8");
  impl_->parsed = jinja::parse_template(source);
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(std::string_view variables_json) const {
  return render(variables_json, std::time(nullptr));
}

std::string ChatTemplate::render(std::string_view variables_json, int64_t now) const {
  jinja::Heap heap(kMaxRenderBytes, kMaxSteps);
  const jinja::Value variables = jinja::parse_json_value(heap, variables_json);
  if (!variables.is(jinja::Kind::kDict)) {
    fail(ErrorKind::kUsage, "the variables of a chat template must be a JSON object");
  }
  const std::time_t seconds = now;
  std::tm local{};
  localtime_r(&seconds, &local);
  return jinja::Evaluator(impl_->parsed, heap, local).render(variables.as_dict());
}

}  // namespace tierpack::text
