#include "runtime/route_recorder.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "base/error.h"
#include "runtime/text/tokenizer.h"

namespace tierpack {

namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// The choices of a batch of tokens, (layers, tokens, used).
class BatchRoutes final : public ForwardObserver {
 public:
  explicit BatchRoutes(const experts::RouteTraceHeader& header) : header_(header) {
    for (uint32_t i = 0; i < header.layers.size(); ++i) {
      layer_of_block_.resize(header.layers[i].block + size_t{1}, kNone);
      layer_of_block_.back() = i;
    }
  }

  void begin(uint32_t position, uint32_t tokens) {
    position_ = position;
    tokens_ = tokens;
    recorded_ = 0;
    ids_.resize(header_.layers.size() * size_t{tokens} * header_.used);
  }

  void on_route(uint32_t block, uint32_t position, std::span<const uint32_t> experts, std::span<const float>) override {
    TIERPACK_CHECK(block < layer_of_block_.size() && layer_of_block_[block] != kNone && experts.size() == header_.used &&
                   position >= position_ && position - position_ < tokens_);
    uint16_t* to = ids_.data() + (size_t{layer_of_block_[block]} * tokens_ + (position - position_)) * header_.used;
    for (const uint32_t e : experts) *to++ = static_cast<uint16_t>(e);
    ++recorded_;
  }

  // Tokens [first, first + tokens) of the batch, in the trace's order.
  std::span<const uint16_t> chunk(uint32_t first, uint32_t tokens) {
    TIERPACK_CHECK(recorded_ == header_.layers.size() * size_t{tokens_});
    part_.clear();
    for (size_t layer = 0; layer < header_.layers.size(); ++layer) {
      const auto from = ids_.begin() + static_cast<ptrdiff_t>((layer * tokens_ + first) * header_.used);
      part_.insert(part_.end(), from, from + static_cast<ptrdiff_t>(size_t{tokens} * header_.used));
    }
    return part_;
  }

 private:
  const experts::RouteTraceHeader& header_;
  std::vector<uint32_t> layer_of_block_;
  uint32_t position_ = 0;
  uint32_t tokens_ = 0;
  size_t recorded_ = 0;  // tokens and layers
  std::vector<uint16_t> ids_;
  std::vector<uint16_t> part_;
};

// How a window of `tokens` tokens is recorded.
std::vector<uint32_t> chunk_sizes(uint32_t tokens, const RecordOptions& options) {
  std::vector<uint32_t> sizes;
  for (uint32_t at = 0; at < tokens; at += sizes.back()) {
    const bool prompt = at < options.prompt;
    sizes.push_back(prompt ? std::min({options.prompt_chunk, options.prompt - at, tokens - at})
                           : std::min(options.chunk, tokens - at));
  }
  return sizes;
}

}  // namespace

experts::RouteTraceHeader trace_header(const Engine& engine) {
  const ModelConfig& config = engine.config();
  experts::RouteTraceHeader header;
  header.routing_id = engine.pack().manifest().routing_id;
  header.used = config.experts_used;
  for (const ExpertLayer& layer : engine.pack().manifest().expert_layers) {
    if (layer.layer >= config.layers) continue;  // blocks that draft are not routed with the others
    header.layers.push_back({layer.layer, layer.experts, layer.record_bytes});
    header.experts = std::max(header.experts, layer.experts);
  }
  if (header.layers.empty() || header.used == 0) {
    fail(ErrorKind::kUnsupported, "{}: a model without routed experts has nothing to trace", engine.options().pack.string());
  }
  return header;
}

void record_routes(Engine& engine, std::span<const std::vector<uint32_t>> texts, const RecordOptions& options,
                   experts::RouteTraceWriter& writer) {
  TIERPACK_CHECK(options.chunk > 0 && options.chunk <= experts::kTraceTokensMax && options.prompt_chunk > 0 &&
                 options.prompt_chunk <= experts::kTraceTokensMax);
  const experts::RouteTraceHeader header = trace_header(engine);
  const std::unique_ptr<Session> session = engine.new_session();
  const text::Tokenizer& tokenizer = engine.tokenizer();
  std::vector<uint32_t> window;
  if (tokenizer.adds_bos() && tokenizer.bos() >= 0) window.push_back(static_cast<uint32_t>(tokenizer.bos()));
  const size_t beginning = window.size();
  if (session->capacity() <= beginning) {
    fail(ErrorKind::kUsage, "a context of {} tokens has no room for text", session->capacity());
  }
  const size_t step = session->capacity() - beginning;
  const uint32_t batch_tokens = std::max(engine.options().chunk, 1u);

  BatchRoutes routes(header);
  session->set_observer(&routes);
  for (const std::vector<uint32_t>& tokens : texts) {
    for (size_t from = 0; from < tokens.size(); from += step) {
      const auto piece = std::span(tokens).subspan(from, std::min(step, tokens.size() - from));
      window.resize(beginning);
      window.insert(window.end(), piece.begin(), piece.end());
      session->clear();
      const std::vector<uint32_t> sizes = chunk_sizes(static_cast<uint32_t>(window.size()), options);
      uint32_t done = 0;
      for (size_t chunk = 0; chunk < sizes.size();) {
        size_t end = chunk;
        uint32_t batch = 0;
        while (end < sizes.size() && (batch == 0 || batch + sizes[end] <= batch_tokens)) batch += sizes[end++];
        routes.begin(done, batch);
        session->append(std::span(window).subspan(done, batch), false, {}, options.should_stop);
        for (uint32_t first = 0; chunk < end; first += sizes[chunk++]) {
          writer.add({sizes[chunk], chunk == 0, routes.chunk(first, sizes[chunk])});
        }
        done += batch;
        if (options.on_tokens) options.on_tokens(batch);
      }
    }
  }
  session->set_observer(nullptr);
}

}  // namespace tierpack
