// Command-line options that every command running a model for people declares the same way: the engine's and the
// sampler's.
#pragma once

#include <memory>
#include <string>

#include "base/progress.h"
#include "runtime/engine.h"
#include "runtime/text/sampler.h"

namespace CLI {
class App;
}

namespace tierpack {

// pack, --threads, --chunk, --context, --kv, --activations, --isa.
void add_engine_options(CLI::App& app, EngineOptions& options);
// --ram, --vram, --place and what else says where weights lie; part of add_engine_options.
void add_memory_options(CLI::App& app, EngineOptions& options);
// --workload, for commands that do people's work: what use is learned under. "default" unless it is given.
void add_workload_option(CLI::App& app, EngineOptions& options);
// --activations alone.
void add_activations_option(CLI::App& app, EngineOptions& options);

// --temp, --top-k, --top-p, --min-p, --repeat-penalty.
void add_sampling_options(CLI::App& app, text::SamplerOptions& options);

// "pebble.tierpack/" -> "pebble": what a pack is called in answers.
std::string pack_name(const std::filesystem::path& pack);

// The plan's remarks as warnings, and its parts for -v.
void log_plan(const Engine& engine);

// What an engine runs with, in a line for -v.
std::string describe(const Engine& engine);

// Lets Engine::open fill in what the options leave open with the settings that were tuned for the pack on this machine, and
// say so with -v.
void use_tuned_settings(EngineOptions& options);

// Engine::open with a progress bar and with tuned settings; Ctrl-C stops it.
std::unique_ptr<Engine> open_engine(EngineOptions options, ProgressStyle style);

}  // namespace tierpack
