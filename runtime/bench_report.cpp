#include "runtime/bench_report.h"

#include <unistd.h>

#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "runtime/expert_report.h"
#include "runtime/svg_plot.h"

namespace tierpack {

namespace {

namespace fs = std::filesystem;

constexpr double kGiga = 1e9;

// 3 significant digits, thousands separated: "1,234", "45.6", "0.123".
std::string figure(double value) {
  if (value >= 1000) return format_count(static_cast<uint64_t>(value + 0.5));
  return value >= 100 ? fmt::format("{:.0f}", value) : value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.3g}", value);
}

// "45.6 (44.9-46.0)"
std::string with_range(const Samples& samples, double unit = 1) {
  return fmt::format("{} ({}-{})", figure(samples.median() / unit), figure(samples.min() / unit), figure(samples.max() / unit));
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

const char* bound_name(const Ceiling& ceiling) { return ceiling.memory ? "memory" : "arithmetic"; }

double prefill_ceiling(const LengthResult& length) { return length.tokens / length.prefill_ceiling.seconds; }
double decode_ceiling(const LengthResult& length) { return 1 / length.decode_ceiling.seconds; }
double pair_ceiling(const BenchResult& result) { return 2 / result.pair_ceiling.seconds; }

const char* device_name(DeviceChoice device) {
  switch (device) {
    case DeviceChoice::kAuto: return "auto";
    case DeviceChoice::kCpu: return "cpu";
    case DeviceChoice::kCuda: return "cuda";
    case DeviceChoice::kSim: return "sim";
  }
  return "";
}

std::string options_line(const BenchSubject& s) {
  const EngineOptions& o = s.options;
  const std::string gpu = o.device == DeviceChoice::kCuda ? fmt::format("GPU {} with {}, ", o.gpu, format_size(o.vram_bytes)) : std::string();
  return fmt::format("{}{} thread{}, {} kernels, chunks of {}, {} KV cache, {} activations; {} run{} after a warm-up, "
                     "{} tokens decoded, {}",
                     gpu, o.threads, o.threads == 1 ? "" : "s", o.isa, o.chunk, kv_type_name(o.kv),
                     activation_type_name(o.activations), s.runs, s.runs == 1 ? "" : "s", s.decode, s.prompts);
}

std::string machine_line(const MachineInfo& m) {
  return fmt::format("{}, {} usable core{}, {}, load average {:.2f}", m.cpu.empty() ? "unknown CPU" : m.cpu, m.cores,
                     m.cores == 1 ? "" : "s", format_size(m.memory_bytes), m.load);
}

std::string weights_line(const PassWork& work) {
  return fmt::format("a token reads {} MB of weights and makes {} M multiply-adds",
                     figure(static_cast<double>(work.decode_bytes()) / 1e6), figure(static_cast<double>(work.prompt_products(1)) / 1e6));
}

// Rows of equal width: the first column to the left, others to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) out += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    out += '\n';
  }
  return out;
}

Json samples_json(const Samples& samples) {
  return {{"median", samples.median()}, {"min", samples.min()}, {"max", samples.max()}, {"runs", samples.values()}};
}

Json length_json(const LengthResult& length) {
  Json prefill = {{"tokens_per_s", samples_json(length.prefill)},
                  {"first_token_s", samples_json(length.first_token)},
                  {"ceiling_tokens_per_s", prefill_ceiling(length)},
                  {"bound", bound_name(length.prefill_ceiling)},
                  {"share_of_ceiling", samples_json(length.prefill_share)}};
  Json decode = {{"tokens_per_s", samples_json(length.decode)},
                 {"weight_bytes_per_s", samples_json(length.decode_read)},
                 {"share_of_read_bandwidth", samples_json(length.decode_read_share)},
                 {"ceiling_tokens_per_s", decode_ceiling(length)},
                 {"bound", bound_name(length.decode_ceiling)},
                 {"share_of_ceiling", samples_json(length.decode_share)}};
  return {{"tokens", length.tokens}, {"prefill", prefill}, {"decode", decode}, {"fingerprint", length.fingerprint.hex()}};
}

Plot plot_of(const BenchSubject& subject, const BenchResult& result, bool prefill) {
  Plot plot;
  plot.title = fmt::format("{}: {}", subject.pack, prefill ? "prefill" : "decode");
  plot.x_label = prefill ? "prompt, tokens" : "tokens before the decoded ones";
  plot.y_label = "tokens/s";
  PlotSeries measured{"measured", {}, false};
  PlotSeries ceiling{"ceiling", {}, true};
  for (const LengthResult& length : result.lengths) {
    const Samples& s = prefill ? length.prefill : length.decode;
    const double top = prefill ? prefill_ceiling(length) : decode_ceiling(length);
    const double x = length.tokens;
    measured.points.push_back({x, s.median(), s.min(), s.max()});
    ceiling.points.push_back({x, top, top, top});
  }
  plot.series = {measured, ceiling};
  return plot;
}

}  // namespace

std::string bench_text(const BenchSubject& subject, const BenchResult& result) {
  std::string out = fmt::format("{}: {}, {}\n{}\n{}\n\n", subject.pack, subject.architecture, weights_line(result.work),
                                machine_line(result.machine), options_line(subject));
  std::vector<std::vector<std::string>> rows = {
      {"prompt", "prefill tokens/s", "of ceiling", "first token s", "decode tokens/s", "GB/s", "of bandwidth", "fingerprint"}};
  for (const LengthResult& length : result.lengths) {
    rows.push_back({format_count(length.tokens), with_range(length.prefill),
                    fmt::format("{} {}", percent(length.prefill_share.median()),
                                bound_name(length.prefill_ceiling)),
                    figure(length.first_token.median()), with_range(length.decode),
                    figure(length.decode_read.median() / kGiga), percent(length.decode_read_share.median()),
                    length.fingerprint.hex()});
  }
  out += aligned(rows);
  if (subject.options.device == DeviceChoice::kCuda) out += "bandwidth and ceilings are those of the CPU and its memory\n";
  out += fmt::format("\nread bandwidth  {} GB/s; {} G multiply-adds/s in 8 bits\n", with_range(result.read_bandwidth, kGiga),
                     with_range(result.int8_rate, kGiga));
  out += fmt::format("two requests    {} tokens/s together, {:.2f} x one; {} of the ceiling ({})\n", with_range(result.pair),
                     result.pair.median() / result.lengths.front().decode.median(),
                     percent(result.pair_share.median()), bound_name(result.pair_ceiling));
  out += fmt::format("load            {} in {} s, {} GB/s\n", format_size(result.load_bytes), figure(result.load_s),
                     figure(static_cast<double>(result.load_bytes) / kGiga / result.load_s));
  out += fmt::format("peak memory     {}\n", format_size(result.peak_bytes));
  if (result.experts.requests > 0) out += fmt::format("{}\n", expert_summary(result.experts));
  return out;
}

std::string bench_json(const BenchSubject& subject, const BenchResult& result) {
  const EngineOptions& o = subject.options;
  Json lengths = Json::array();
  for (const LengthResult& length : result.lengths) lengths.push_back(length_json(length));
  const Json out = {
      {"format", "tierpack-bench"},
      {"format_version", 1},
      {"tierpack", subject.version},
      {"time", subject.time},
      {"pack", subject.pack},
      {"model", subject.model},
      {"architecture", subject.architecture},
      {"routing_id", subject.routing_id},
      {"options",
       {{"device", device_name(o.device)}, {"vram_bytes", o.vram_bytes}, {"threads", o.threads}, {"isa", o.isa}, {"chunk", o.chunk}, {"context", o.context}, {"kv", kv_type_name(o.kv)},
        {"activations", activation_type_name(o.activations)}, {"runs", subject.runs}, {"decode", subject.decode},
        {"prompts", subject.prompts}}},
      {"machine",
       {{"cpu", result.machine.cpu}, {"cores", result.machine.cores}, {"memory_bytes", result.machine.memory_bytes},
        {"load_average", result.machine.load}}},
      {"work",
       {{"decode_weight_bytes", result.work.decode_bytes()}, {"decode_products", result.work.prompt_products(1)}}},
      {"read_bytes_per_s", samples_json(result.read_bandwidth)},
      {"int8_products_per_s", samples_json(result.int8_rate)},
      {"lengths", lengths},
      {"two_requests",
       {{"prompt", result.lengths.front().tokens},
        {"tokens_per_s", samples_json(result.pair)},
        {"ceiling_tokens_per_s", pair_ceiling(result)},
        {"bound", bound_name(result.pair_ceiling)},
        {"share_of_ceiling", samples_json(result.pair_share)}}},
      {"load", {{"seconds", result.load_s}, {"bytes", result.load_bytes}}},
      {"peak_resident_bytes", result.peak_bytes},
      {"experts", expert_json(result.experts, result.expert_layers)}};
  return dump_json(out);
}

std::string bench_markdown(const BenchSubject& subject, const BenchResult& result) {
  std::string out = fmt::format("# {}\n\n", subject.pack);
  out += fmt::format("{}, {}: {}.\n\n", subject.time, machine_line(result.machine), options_line(subject));
  out += fmt::format("{} ({}, tierpack {}): {}.\n\n", subject.model, subject.architecture, subject.version,
                     weights_line(result.work));
  out += "| prompt | prefill, tokens/s | ceiling | first token, s | decode, tokens/s | ceiling | GB/s of weights | of the read "
         "bandwidth | fingerprint |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const LengthResult& length : result.lengths) {
    out += fmt::format("| {} | {} | {} ({}) | {} | {} | {} ({}) | {} | {} | `{}` |\n", format_count(length.tokens),
                       with_range(length.prefill), figure(prefill_ceiling(length)), bound_name(length.prefill_ceiling),
                       with_range(length.first_token), with_range(length.decode), figure(decode_ceiling(length)),
                       bound_name(length.decode_ceiling), figure(length.decode_read.median() / kGiga),
                       percent(length.decode_read_share.median()), length.fingerprint.hex());
  }
  out += "\nMedians, smallest and largest of the runs in brackets.\n\n| | measured | ceiling |\n|---|---|---|\n";
  out += fmt::format("| two requests at once, tokens/s | {} | {} ({}) |\n", with_range(result.pair), figure(pair_ceiling(result)),
                     bound_name(result.pair_ceiling));
  out += fmt::format("| read bandwidth, GB/s | {} | |\n", with_range(result.read_bandwidth, kGiga));
  out += fmt::format("| 8-bit multiply-adds, G/s | {} | |\n", with_range(result.int8_rate, kGiga));
  out += fmt::format("| loading {}, s | {} | |\n", format_size(result.load_bytes), figure(result.load_s));
  out += fmt::format("| peak memory | {} | |\n\n", format_size(result.peak_bytes));
  return out + "![prefill](prefill.svg)\n\n![decode](decode.svg)\n";
}

void require_report_target(const fs::path& directory) {
  std::error_code problem;
  const fs::file_status status = fs::status(directory, problem);
  if (fs::exists(status)) {
    if (!fs::is_directory(status) || !fs::is_empty(directory, problem) || problem) {
      fail(ErrorKind::kUsage, "{}: cannot hold the report, something is there already; name a new or an empty directory",
           directory.string());
    }
  } else if (const fs::path parent = fs::absolute(directory).lexically_normal().parent_path(); !fs::is_directory(parent, problem)) {
    fail(ErrorKind::kUsage, "{}: cannot hold the report, there is no directory {}", directory.string(), parent.string());
  }
}

void write_report(const fs::path& directory, const BenchSubject& subject, const BenchResult& result) {
  fs::path target = fs::absolute(directory).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  require_report_target(target);
  const fs::path beside = target.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    std::error_code problem;
    if (!fs::create_directory(beside, problem)) {
      fail(ErrorKind::kIo, "{}: the report cannot be written: cannot create {}: {}", directory.string(), beside.string(),
           problem ? problem.message() : "it is there already");
    }
    const auto write = [&](const char* name, const std::string& content) {
      write_file_atomically(beside / name, as_bytes(content));
    };
    write("report.json", bench_json(subject, result));
    write("report.md", bench_markdown(subject, result));
    write("prefill.svg", render_svg(plot_of(subject, result, true)));
    write("decode.svg", render_svg(plot_of(subject, result, false)));
    rename_durably(beside, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(beside, ignored);
    throw;
  }
}

}  // namespace tierpack
