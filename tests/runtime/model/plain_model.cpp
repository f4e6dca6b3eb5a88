#include "tests/runtime/model/plain_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace tierpack::testing_support {

namespace {

using Vector = PlainModel::Vector;
using Rows = PlainModel::Rows;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

double dot(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Vector slice(const Vector& x, size_t first, size_t count) {
  return {x.begin() + static_cast<ptrdiff_t>(first), x.begin() + static_cast<ptrdiff_t>(first + count)};
}

void append(Vector& to, const Vector& more) { to.insert(to.end(), more.begin(), more.end()); }

Vector softmax(Vector x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - top);
  for (double& v : x) v /= sum;
  return x;
}

// Indices of the k largest, largest first, the lower index first among equals.
std::vector<uint32_t> largest(const Vector& x, size_t k) {
  std::vector<uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return x[a] > x[b]; });
  order.resize(k);
  return order;
}

std::string blk(uint32_t block, const char* name) { return "blk." + std::to_string(block) + "." + name; }

}  // namespace

const std::vector<float>& PlainModel::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::runtime_error("no tensor " + name);
  return found->second;
}

Vector PlainModel::times(const std::string& name, const Vector& x, size_t first_row, size_t rows) const {
  const std::vector<float>& w = tensor(name);
  if (rows == 0) rows = w.size() / x.size();
  Vector y(rows);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < x.size(); ++i) y[r] += static_cast<double>(w[(first_row + r) * x.size() + i]) * x[i];
  }
  return y;
}

Vector PlainModel::norm(const Vector& x, const std::string& gamma, size_t gamma_offset) const {
  const std::vector<float>& w = tensor(gamma);
  const double r = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + c_.norm_eps);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * r * w[gamma_offset + i];
  return y;
}

void PlainModel::rotate(Vector& head, uint32_t position) const {
  const size_t pairs = c_.rotary_dim / 2;
  for (size_t i = 0; i < pairs; ++i) {
    const double angle = position * std::pow(static_cast<double>(c_.rope_base), -2.0 * static_cast<double>(i) / c_.rotary_dim);
    const double a = head[i];
    const double b = head[i + pairs];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + pairs] = a * std::sin(angle) + b * std::cos(angle);
  }
}

std::set<uint32_t> PlainModel::visible(uint32_t block, const Rows& x, uint32_t position) const {
  std::set<uint32_t> seen;
  const uint32_t ratio = c_.compress_ratio[block];
  const uint32_t blocks = ratio == 0 ? 0 : (position + 1) / ratio;
  for (uint32_t p = blocks * ratio; p <= position; ++p) seen.insert(p);
  if (blocks == 0) return seen;
  const uint32_t dim = c_.indexer.head_dim;
  Vector score(blocks);
  for (uint32_t b = 0; b < blocks; ++b) {
    Vector key(dim);
    for (uint32_t i = 0; i < ratio; ++i) {
      const Vector raw = times(blk(block, "indexer.k_proj.weight"), x[b * ratio + i]);
      for (uint32_t d = 0; d < dim; ++d) key[d] += raw[d] / ratio;
    }
    key = norm(key, blk(block, "indexer.k_norm.weight"));
    rotate(key, b * ratio);
    for (uint32_t h = 0; h < c_.indexer.heads; ++h) {
      Vector q = norm(times(blk(block, "indexer.q_proj.weight"), x[position], h * dim, dim),
                      blk(block, "indexer.q_norm.weight"));
      rotate(q, position);
      score[b] += std::max(dot(q, key), 0.0);
    }
  }
  for (const uint32_t b : largest(score, std::min(blocks, c_.indexer.budget / ratio))) {
    for (uint32_t i = 0; i < ratio; ++i) seen.insert(b * ratio + i);
  }
  return seen;
}

Rows PlainModel::attention(uint32_t block, const Rows& x, bool gated) {
  const uint32_t dim = c_.head_dim;
  Rows keys, values, out;
  for (uint32_t t = 0; t < x.size(); ++t) {
    Vector k = times(blk(block, "attn_k.weight"), x[t]);
    Vector key;
    for (uint32_t h = 0; h < c_.kv_heads; ++h) {
      Vector head = norm(slice(k, h * dim, dim), blk(block, "attn_k_norm.weight"));
      rotate(head, t);
      append(key, head);
    }
    keys.push_back(key);
    values.push_back(times(blk(block, "attn_v.weight"), x[t]));

    std::set<uint32_t> seen;
    if (gated && c_.compress_ratio[block] > 0) {
      seen = visible(block, x, t);
    } else {
      for (uint32_t p = 0; p <= t; ++p) seen.insert(p);
    }
    attended[{block, t}] = seen;

    const Vector projected = times(blk(block, "attn_q.weight"), x[t]);
    Vector o;
    for (uint32_t h = 0; h < c_.heads; ++h) {
      const size_t at = h * size_t{dim} * (gated ? 2 : 1);
      Vector q = norm(slice(projected, at, dim), blk(block, "attn_q_norm.weight"));
      rotate(q, t);
      const size_t kv = h / (c_.heads / c_.kv_heads) * size_t{dim};
      Vector score;
      for (const uint32_t p : seen) score.push_back(dot(q, slice(keys[p], kv, dim)) / std::sqrt(static_cast<double>(dim)));
      score = softmax(score);
      Vector head(dim);
      size_t i = 0;
      for (const uint32_t p : seen) {
        for (uint32_t d = 0; d < dim; ++d) head[d] += score[i] * values[p][kv + d];
        ++i;
      }
      for (uint32_t d = 0; gated && d < dim; ++d) head[d] *= sigmoid(projected[at + dim + d]);
      append(o, head);
    }
    out.push_back(times(blk(block, "attn_output.weight"), o));
  }
  return out;
}

Rows PlainModel::delta_net(uint32_t block, const Rows& x) const {
  const size_t dim = c_.gdn.head_dim;
  const size_t keys = c_.gdn.k_heads * dim;
  const std::vector<float>& conv = tensor(blk(block, "ssm_conv1d.weight"));
  std::vector<Rows> state(c_.gdn.v_heads, Rows(dim, Vector(dim)));  // [head][key][value]
  Rows inputs, out;
  for (size_t t = 0; t < x.size(); ++t) {
    inputs.push_back(times(blk(block, "attn_qkv.weight"), x[t]));
    Vector u(inputs.back().size());
    for (size_t ch = 0; ch < u.size(); ++ch) {
      for (size_t k = 0; k < c_.gdn.conv; ++k) {
        const size_t back = c_.gdn.conv - 1 - k;
        if (back <= t) u[ch] += conv[ch * c_.gdn.conv + k] * inputs[t - back][ch];
      }
      u[ch] = silu(u[ch]);
    }
    const Vector z = times(blk(block, "attn_gate.weight"), x[t]);
    const Vector b = times(blk(block, "ssm_beta.weight"), x[t]);
    const Vector alpha = times(blk(block, "ssm_alpha.weight"), x[t]);
    Vector o;
    for (size_t h = 0; h < c_.gdn.v_heads; ++h) {
      Vector q = slice(u, h % c_.gdn.k_heads * dim, dim);
      Vector k = slice(u, keys + h % c_.gdn.k_heads * dim, dim);
      const Vector v = slice(u, 2 * keys + h * dim, dim);
      const double q_size = std::sqrt(dot(q, q) + 1e-6) * std::sqrt(static_cast<double>(dim));
      const double k_size = std::sqrt(dot(k, k) + 1e-6);
      for (double& e : q) e /= q_size;
      for (double& e : k) e /= k_size;
      const double decay = std::exp(tensor(blk(block, "ssm_a"))[h] *
                                    std::log1p(std::exp(alpha[h] + tensor(blk(block, "ssm_dt.bias"))[h])));
      Rows& s = state[h];
      Vector head(dim);
      for (size_t j = 0; j < dim; ++j) {
        double predicted = 0;
        for (size_t i = 0; i < dim; ++i) predicted += (s[i][j] *= decay) * k[i];
        const double error = sigmoid(b[h]) * (v[j] - predicted);
        for (size_t i = 0; i < dim; ++i) head[j] += (s[i][j] += k[i] * error) * q[i];
      }
      head = norm(head, blk(block, "ssm_norm.weight"));
      for (size_t j = 0; j < dim; ++j) head[j] *= sigmoid(z[h * dim + j]);
      append(o, head);
    }
    out.push_back(times(blk(block, "ssm_out.weight"), o));
  }
  return out;
}

Vector PlainModel::expert(const Vector& x, const std::string& gate, const std::string& up, const std::string& down,
                          size_t index) const {
  const size_t ff = down.find("shexp") != std::string::npos ? c_.shared_ff : c_.expert_ff;
  Vector h = times(gate, x, index * ff, ff);
  const Vector u = times(up, x, index * ff, ff);
  for (size_t i = 0; i < ff; ++i) h[i] = silu(h[i]) * u[i];
  return times(down, h, index * c_.hidden, c_.hidden);
}

Rows PlainModel::experts(uint32_t block, const Rows& x) {
  Rows out;
  for (uint32_t t = 0; t < x.size(); ++t) {
    const Vector p = softmax(times(blk(block, "ffn_gate_inp.weight"), x[t]));
    const std::vector<uint32_t> ids = largest(p, c_.experts_used);
    routes[{block, t}] = ids;
    double sum = 0;
    for (const uint32_t e : ids) sum += p[e];
    Vector y(c_.hidden);
    for (const uint32_t e : ids) {
      const Vector one = expert(x[t], blk(block, "ffn_gate_exps.weight"), blk(block, "ffn_up_exps.weight"),
                                blk(block, "ffn_down_exps.weight"), e);
      for (size_t i = 0; i < y.size(); ++i) y[i] += p[e] / sum * one[i];
    }
    if (c_.shared_ff > 0) {
      const double weight = sigmoid(times(blk(block, "ffn_gate_inp_shexp.weight"), x[t])[0]);
      const Vector one = expert(x[t], blk(block, "ffn_gate_shexp.weight"), blk(block, "ffn_up_shexp.weight"),
                                blk(block, "ffn_down_shexp.weight"), 0);
      for (size_t i = 0; i < y.size(); ++i) y[i] += weight * one[i];
    }
    out.push_back(y);
  }
  return out;
}

void PlainModel::add_ngrams(const std::vector<uint32_t>& tokens, std::vector<Rows>& streams) const {
  const ModelConfig::Ple& ple = c_.ple;
  const std::string p = "blk." + std::to_string(ple.layer) + ".";
  const std::vector<float>& table = tensor("per_layer_token_embd.weight");
  const std::vector<float>& conv = tensor(p + "ple_conv1d.weight");
  std::vector<std::vector<Rows>> normed;  // [t][stream] -> one row
  for (size_t t = 0; t < tokens.size(); ++t) {
    Vector e;
    for (size_t head = 0; head < ple.sizes.size(); ++head) {
      const size_t n = 2 + head / ple.heads_per_ngram;
      uint64_t hash = 0;
      bool cut = false;
      for (size_t back = 0; back < n; ++back) {
        if (back > 0) cut = cut || back > t || tokens[t - back] == ple.eos;
        hash ^= (cut ? ple.eos : tokens[t - back]) * ple.multipliers[back];
      }
      const uint64_t row = hash % ple.sizes[head] + ple.offsets[head];
      for (size_t i = 0; i < ple.head_dim; ++i) e.push_back(table[row * ple.head_dim + i]);
    }
    const Vector key = times(p + "ple_key.weight", e);
    const Vector value = times(p + "ple_value.weight", e);
    normed.emplace_back();
    for (size_t s = 0; s < c_.hc.streams; ++s) {
      const size_t at = s * c_.hidden;
      const double score = dot(norm(slice(key, at, c_.hidden), p + "ple_norm_key.weight", at),
                               norm(streams[t][s], p + "ple_norm_query.weight", at)) /
                           std::sqrt(static_cast<double>(c_.hidden));
      const double sign = score > 0 ? 1 : score < 0 ? -1 : 0;
      const double gate = sigmoid(sign * std::sqrt(std::max(std::fabs(score), 1e-6)));
      Vector gated = value;
      for (double& v : gated) v *= gate;
      normed[t].push_back({norm(gated, p + "ple_norm_conv.weight", at)});
      for (size_t i = 0; i < c_.hidden; ++i) {
        double sum = 0;
        for (size_t k = 0; k < ple.conv; ++k) {
          const size_t back = (ple.conv - 1 - k) * ple.ngram;
          if (back <= t) sum += conv[(at + i) * ple.conv + k] * normed[t - back][s][0][i];
        }
        streams[t][s][i] += gated[i] + silu(sum);
      }
    }
  }
}

Rows PlainModel::mix(const std::string& prefix, const std::vector<Rows>& streams, Rows* inject) const {
  Rows out;
  const auto count = static_cast<double>(c_.hc.streams);
  for (const Rows& token : streams) {
    Vector normed;
    for (size_t s = 0; s < token.size(); ++s) append(normed, norm(token[s], prefix + "_norm.weight", s * c_.hidden));
    Vector low = times(prefix + "_down.weight", normed);
    for (double& v : low) v = silu(v / count);
    const Vector gate = times(prefix + "_up.weight", low);
    Vector x(c_.hidden);
    for (size_t i = 0; i < normed.size(); ++i) x[i % c_.hidden] += sigmoid(gate[i]) * normed[i] / count;
    out.push_back(x);
    if (inject == nullptr) continue;
    Vector w = times(prefix + "_inject.weight", normed);
    for (double& v : w) v = 2 * sigmoid(v / count);
    inject->push_back(w);
  }
  return out;
}

Rows PlainModel::run(const std::vector<uint32_t>& tokens) {
  routes.clear();
  attended.clear();
  const bool hyper = c_.architecture == Architecture::kQwen4Exp;
  const size_t count = hyper ? c_.hc.streams : 1;
  std::vector<Rows> streams;  // [t][stream]
  for (const uint32_t id : tokens) {
    Vector e(c_.hidden);
    for (size_t i = 0; i < e.size(); ++i) e[i] = tensor("token_embd.weight")[id * c_.hidden + i];
    streams.emplace_back(count, e);
  }
  const auto plain_input = [&](const std::string& gamma) {
    Rows x;
    for (const Rows& token : streams) x.push_back(norm(token[0], gamma));
    return x;
  };
  const auto add = [&](const Rows& y, const Rows* inject) {
    for (size_t t = 0; t < streams.size(); ++t) {
      for (size_t s = 0; s < count; ++s) {
        for (size_t i = 0; i < c_.hidden; ++i) streams[t][s][i] += (inject != nullptr ? (*inject)[t][s] : 1) * y[t][i];
      }
    }
  };
  for (uint32_t b = 0; b < c_.layers; ++b) {
    if (static_cast<int32_t>(b) == c_.ple.layer) add_ngrams(tokens, streams);
    if (hyper) {
      Rows inject;
      const Rows x = mix(blk(b, "hc_attn"), streams, &inject);
      add(c_.recurrent[b] ? delta_net(b, x) : attention(b, x, true), &inject);
      Rows ffn_inject;
      const Rows f = mix(blk(b, "hc_ffn"), streams, &ffn_inject);
      add(experts(b, f), &ffn_inject);
    } else {
      add(attention(b, plain_input(blk(b, "attn_norm.weight")), false), nullptr);
      add(experts(b, plain_input(blk(b, "ffn_norm.weight"))), nullptr);
    }
  }
  const Rows last = hyper ? mix("output_hc", streams, nullptr) : plain_input("output_norm.weight");
  Rows logits;
  for (const Vector& x : last) logits.push_back(times("output.weight", x));
  return logits;
}

}  // namespace tierpack::testing_support
