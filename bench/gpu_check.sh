#!/bin/sh
# What tierpack does on this machine's NVIDIA GPU: see --help. Runs itself once for each section, under a time limit.
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
self=$root/bench/gpu_check.sh
all="build conformance fingerprints speed sanitizer"

usage() {
    cat <<'TEXT'
Usage: bench/gpu_check.sh [OPTION]... [OUT]

Builds tierpack for this machine's NVIDIA GPU and checks it, without a network, in under 8 minutes. Results go to OUT
(default build-gpu/check): one JSON file for each section, all of them in gpu_check.json, and a summary on stdout.

  build         the program and the tests of its kernels, in build-gpu                                    190 s at most
  conformance   every kernel and the engine on the GPU against the reference, bit for bit                  80 s
  fingerprints  logits of models/pebble on the GPU and on the CPU, byte for byte                           30 s
  speed         a random model of 2.7 GB with 25, 50 and 100 % of its experts in VRAM, bandwidths         110 s
  sanitizer     compute-sanitizer (memcheck, racecheck) on small cases                                     50 s

Options:
  --only A,B       run these sections alone
  --again          run sections that have passed already as well; otherwise they are kept while the commit is the same
  --patience N     multiply the time limits, for machines with few cores
  --jobs N         compile N files at a time (default: all cores)
  --archs LIST     GPU architectures, such as 86 or 80;90 (default: this machine's GPU, or 80 without one)
  --layers N       layers of the random model (default 8; each has 0.34 GB)
  --build DIR      the build folder (default build-gpu)
  --no-gpu         behave as on a machine without a GPU
  --help           this text

Needed: what `make build` needs, nvcc, jq for the section speed, GoogleTest and Boost.Context for the tests. What is missing is said, and
the sections that can do without are run. Without a GPU the build is made and the other sections are skipped.
Exit code: 0 when no section failed, 1 when one did, 2 for wrong usage.
TEXT
}

refuse() {
    echo "gpu_check.sh: $1" >&2
    exit 2
}

section=
only=
again=no
patience=1
jobs=$(nproc)
archs=
layers=8
build=$root/build-gpu
out=
no_gpu=no
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --again) again=yes ;;
        --no-gpu) no_gpu=yes ;;
        --only | --patience | --jobs | --archs | --layers | --build | --section)
            [ $# -ge 2 ] || refuse "$1 needs a value"
            case $1 in
                --only) only=$(echo "$2" | tr ',' ' ') ;;
                --patience) patience=$2 ;;
                --jobs) jobs=$2 ;;
                --archs) archs=$2 ;;
                --layers) layers=$2 ;;
                --build) build=$2 ;;
                --section) section=$2 ;;  # how this script calls itself
            esac
            shift ;;
        -*) refuse "unknown option $1; see --help" ;;
        *)
            [ -z "$out" ] || refuse "one folder for the results is enough: $1"
            out=$1 ;;
    esac
    shift
done
for number in "$patience" "$jobs" "$layers"; do
    case $number in '' | *[!0-9]* | 0) refuse "'$number' is not a number from 1 on" ;; esac
done
for name in $only; do
    case " $all " in *" $name "*) ;; *) refuse "no section is called $name; there are: $all" ;; esac
done
case $build in /*) ;; *) build=$PWD/$build ;; esac
out=${out:-$build/check}
case $out in /*) ;; *) out=$PWD/$out ;; esac
work=$build/check-work  # large files
mkdir -p "$out"

# --- Helpers of the sections

# A JSON string.
quoted() { printf '"%s"' "$(printf '%s' "$1" | tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"; }
# finish STATUS WHY [FIGURES]: ends a section; FIGURES is a JSON object.
finish() {
    printf '{"status": "%s", "why": %s, "figures": %s}\n' "$1" "$(quoted "$2")" "${3:-{\}}" >"$out/$section.result"
    exit 0
}
# What results are of: the sources, with what was changed in them, and what was asked for. Sources without git are new every time.
commit() {
    if at=$(git -C "$root" describe --always --dirty 2>/dev/null); then
        case $at in *-dirty) at=$at-$(git -C "$root" diff HEAD | cksum | tr ' ' '-') ;; esac
    else
        at=unknown-$(date +%s)
    fi
    card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
    echo "$at, architectures ${archs:-of this machine}, $layers layers, GPU ${card:-none}"
}
# Why nothing can run on a GPU; empty when it can.
gpu_problem() {
    if [ "$no_gpu" = yes ]; then
        echo "--no-gpu was given"
    elif [ ! -e /dev/nvidiactl ] && ! nvidia-smi -L >/dev/null 2>&1; then
        echo "there is no NVIDIA GPU: no /dev/nvidiactl, and nvidia-smi lists none"
    fi
}
# ask_gpu FIELD: what nvidia-smi knows of the first GPU; empty when it does not.
ask_gpu() { [ "$no_gpu" = yes ] || nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
find_nvcc() {
    for candidate in "$(command -v nvcc || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
        if [ -x "$candidate" ]; then echo "$candidate"; return; fi
    done
}
need_gpu() {
    problem=$(gpu_problem)
    [ -z "$problem" ] || finish skipped "$problem"
}
need_built() {
    [ -x "$build/$1" ] || finish skipped "$build/$1 is not there: the section build has not made it"
}
tierpack() { "$build/tierpack" "$@"; }

# --- The sections. Each ends with finish.

section_build() {
    for tool in cmake ninja g++; do
        command -v $tool >/dev/null || finish failed "$tool is missing"
    done
    nvcc=$(find_nvcc)
    [ -n "$nvcc" ] || finish failed "nvcc is missing: neither on PATH nor below CUDA_HOME or /usr/local/cuda"
    if [ -z "$archs" ]; then
        archs=$(ask_gpu compute_cap | tr -d '. ')
        case $archs in *[!0-9]*) archs= ;; esac  # an old nvidia-smi does not know the field
    fi
    [ -n "$archs" ] || archs=$([ -z "$(gpu_problem)" ] && echo native || echo 80)
    configure() {
        cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTIERPACK_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" \
              "-DTIERPACK_CUDA_ARCHS=$archs" "-DTIERPACK_TESTS=$1"
    }
    note="with tests"
    targets="tierpack speed_model_tool gpu_tests"
    if ! configure ON; then
        note="without tests: they cannot be configured (GoogleTest or Boost.Context missing?), see build.log"
        targets="tierpack speed_model_tool"
        configure OFF || finish failed "cmake could not configure $build; see build.log"
    fi
    # shellcheck disable=SC2086
    cmake --build "$build" -j "$jobs" --target $targets || finish failed "the build failed; see build.log"
    finish passed "$note" "{\"architectures\": $(quoted "$archs"), \"nvcc\": $(quoted "$("$nvcc" --version | sed -n 's/.*release \([^,]*\), \(.*\)/\2/p')"), \"jobs\": $jobs}"
}

section_conformance() {
    need_gpu
    mkdir -p "$out/conformance"
    rm -f "$out/conformance"/*.json
    programs=0
    cases=0
    failures=0
    bad=
    for program in "$build"/gpu_*_test; do
        [ -x "$program" ] || finish skipped "no gpu_*_test in $build: the section build has not made them"
        name=$(basename "$program")
        result=$out/conformance/$name.json
        code=0
        "$program" --gtest_brief=1 --gtest_output="json:$result" || code=$?
        programs=$((programs + 1))
        # The totals are the first of their names in the file.
        ran=$(sed -n 's/^ *"tests": \([0-9]*\),.*/\1/p;' "$result" 2>/dev/null | head -n 1)
        failed=$(sed -n 's/^ *"failures": \([0-9]*\),.*/\1/p;' "$result" 2>/dev/null | head -n 1)
        cases=$((cases + ${ran:-0}))
        if { [ "$code" -ne 0 ] && [ "${failed:-0}" -eq 0 ]; } || [ "${ran:-0}" -eq 0 ]; then
            bad="$bad $name (exit code $code, ${ran:-no} cases)"
            failures=$((failures + 1))
        elif [ "${failed:-0}" -gt 0 ]; then
            bad="$bad $name ($failed of $ran)"
            failures=$((failures + failed))
        fi
    done
    figures="{\"programs\": $programs, \"cases\": $cases, \"failures\": $failures}"
    [ -z "$bad" ] || finish failed "failures in$bad; see conformance.log" "$figures"
    finish passed "$cases cases of $programs programs" "$figures"
}

# The embedded model as a pack.
pack_pebble() {
    if [ ! -e "$work/pebble.tierpack/pack.json" ]; then
        rm -rf "$work/pebble.tierpack"
        tierpack repack "$root/models/pebble" --to "$work/pebble.tierpack" -q || finish failed "models/pebble could not be packed"
    fi
}

section_fingerprints() {
    need_gpu
    need_built tierpack
    mkdir -p "$work"
    pack_pebble
    awk 'BEGIN { for (i = 0; i < 200; ++i) print (i * 7919 + 13) % 4000 }' >"$work/tokens"
    logits() {  # FILE OPTION...
        file=$1
        shift
        tierpack eval "$work/pebble.tierpack" --tokens "$work/tokens" --context 256 --logits-out "$work/$file" -q "$@" >/dev/null
    }
    compared=0
    bad=
    for kv in f16 q8; do
        for chunk in 1 64; do
            logits cpu.logits --device cpu --chunk $chunk --kv $kv || finish failed "the CPU could not compute with --chunk $chunk --kv $kv; see fingerprints.log"
            logits gpu.logits --device cuda --chunk $chunk --kv $kv || finish failed "the GPU could not compute with --chunk $chunk --kv $kv; see fingerprints.log"
            cmp "$work/cpu.logits" "$work/gpu.logits" || bad="$bad --chunk $chunk --kv $kv;"
            compared=$((compared + 1))
        done
    done
    figures="{\"runs\": $compared, \"tokens\": 200, \"sha256\": $(quoted "$(sha256sum <"$work/gpu.logits" | cut -d' ' -f1)")}"
    [ -z "$bad" ] || finish failed "the GPU's logits differ from the CPU's with$bad" "$figures"
    finish passed "the GPU's logits are the CPU's, byte for byte, in $compared runs of 200 tokens" "$figures"
}

# The rates of a bench JSON on stdin.
bench_figures='{device: .options.device, vram_bytes: .options.vram_bytes,
  rates: [.lengths[] | {prompt: .tokens, prefill_tokens_s: .prefill.tokens_per_s.median, decode_tokens_s: .decode.tokens_per_s.median,
                        decode_weight_bytes_s: .decode.weight_bytes_per_s.median, fingerprint: .fingerprint}],
  experts: (.experts | {requests, vram_hits, ram_hits, disk_reads, disk_bytes, moves, move_bytes, cpu_computed, gpu_copies, gpu_copy_bytes, stall_us,
                        vram_hit_rate: (if .requests > 0 then .vram_hits / .requests else null end)}),
  load: .load}'

section_speed() {
    need_gpu
    need_built tierpack
    need_built speed_model_tool
    command -v jq >/dev/null || finish skipped "jq is missing"
    mkdir -p "$work"
    export XDG_STATE_HOME="$work/state"  # nothing tuned or learned elsewhere
    pack=$work/speed-$layers.tierpack
    if [ ! -e "$pack/pack.json" ]; then
        rm -rf "$pack" "$work/speed.gguf"
        "$build/speed_model_tool" "$work/speed.gguf" layers="$layers" || finish failed "the random model could not be written; is there room in $work?"
        tierpack repack "$work/speed.gguf" --to "$pack" -q || finish failed "the random model could not be packed"
        rm "$work/speed.gguf"
    fi
    tierpack doctor "$pack" --json >"$out/doctor.json" || finish failed "tierpack doctor failed; see speed.log"

    # All experts in VRAM; what is not experts there is the rest of the plan.
    lengths=256,2048
    decode=64
    tierpack plan "$pack" --vram 1000GiB --context $((2048 + decode)) --json >"$work/plan.json" || finish failed "tierpack plan failed; see speed.log"
    experts=$(jq '[.expert_slots[] | .slot_bytes * .experts] | add' "$work/plan.json")
    # bench has two sessions where a plan has one; experts get whole 2 MiB.
    fixed=$(jq '[.parts[] | select(.tier == "vram" and .name != "expert cache") | if .name == "KV cache and states" then 2 * .bytes else .bytes end] | add + 2097152' "$work/plan.json")
    rm -f "$out"/speed-*.json
    for share in 25 50 100; do
        tierpack bench "$pack" --device cuda --vram $((fixed + experts * share / 100)) --lengths $lengths --decode $decode --runs 2 \
                 --json -q >"$out/speed-$share.json" || finish failed "tierpack bench failed with $share % of the experts in VRAM; see speed.log"
    done
    tierpack bench "$pack" --device cpu --lengths 256 --decode $decode --runs 1 --json -q >"$out/speed-cpu.json" || finish failed "tierpack bench failed on the CPU"

    figures=$(jq -n --slurpfile doctor "$out/doctor.json" --slurpfile cpu "$out/speed-cpu.json" --slurpfile a "$out/speed-25.json" \
                 --slurpfile b "$out/speed-50.json" --slurpfile c "$out/speed-100.json" --argjson experts "$experts" --argjson fixed "$fixed" "
        def figures: $bench_figures;"'
        ($doctor[0].gpus[0].memory_bytes_s) as $memory | ($c[0].work.decode_weight_bytes) as $token |
        {expert_bytes: $experts, other_vram_bytes: $fixed, token_weight_bytes: $token,
         copy_pinned_bytes_s: $doctor[0].gpus[0].pinned_bytes_s, copy_pageable_bytes_s: $doctor[0].gpus[0].pageable_bytes_s, memory_bytes_s: $memory,
         cpu: ($cpu[0] | figures), vram_25: ($a[0] | figures), vram_50: ($b[0] | figures), vram_100: ($c[0] | figures)}
        | .decode_bound_tokens_s = (if $memory > 0 then $memory / $token else null end)
        | .decode_share_of_bound = (if $memory > 0 then .vram_100.rates[0].decode_weight_bytes_s / $memory else null end)
        | .fingerprints_equal = ([.cpu, .vram_25, .vram_50, .vram_100 | .rates[0].fingerprint] | unique | length == 1)') ||
        finish failed "the results could not be put together; see speed.log"
    [ "$(printf '%s' "$figures" | jq .fingerprints_equal)" = true ] || finish failed "budgets of VRAM changed logits: the fingerprints differ" "$figures"
    [ "$(printf '%s' "$figures" | jq '.vram_100.rates | all(.experts.vram_hits == .experts.requests)')" = true ] ||
        finish failed "with room for all experts in VRAM not all of them were found there" "$figures"
    finish passed "the same logits with every budget and on the CPU" "$figures"
}

section_sanitizer() {
    need_gpu
    sanitizer=$(command -v compute-sanitizer || true)
    [ -n "$sanitizer" ] || sanitizer=$(dirname "$(find_nvcc)")/compute-sanitizer
    [ -x "$sanitizer" ] || finish skipped "compute-sanitizer is not installed"
    runs=0
    bad=
    for what in cuda_norms_test:CudaNorms.ExtremeValues cuda_routing_test:CudaRoute.TiesGoToTheLowerIndex device_products_test:DeviceProducts.UnfinishedBlocks; do
        program=gpu_${what%:*}
        [ -x "$build/$program" ] || continue
        for tool in memcheck racecheck; do
            "$sanitizer" --tool $tool --error-exitcode 9 "$build/$program" "--gtest_filter=${what#*:}" || bad="$bad $tool on $program;"
            runs=$((runs + 1))
        done
    done
    [ $runs -gt 0 ] || finish skipped "no gpu_*_test in $build: the section build has not made them"
    [ -z "$bad" ] || finish failed "errors of$bad see sanitizer.log" "{\"runs\": $runs}"
    finish passed "no errors in $runs runs" "{\"runs\": $runs}"
}

if [ -n "$section" ]; then
    "section_$section"
fi

# --- All sections, one after the other

limit_of() {
    case $1 in
        build) echo 190 ;;
        conformance) echo 80 ;;
        fingerprints) echo 30 ;;
        speed) echo 110 ;;
        sanitizer) echo 50 ;;
    esac
}
# status_of FILE
status_of() { sed -n 's/.*"status": "\([a-z]*\)".*/\1/p' "$1" 2>/dev/null | head -n 1; }

now_at=$(commit)
problem=$(gpu_problem)
[ -z "$problem" ] || echo "No GPU to check: $problem."
failed=no
for section in ${only:-$all}; do
    file=$out/$section.json
    if [ "$again" = no ] && { [ "$section" != build ] || [ -x "$build/tierpack" ]; } && [ "$(status_of "$file")" = passed ] &&
        grep -qF "\"commit\": $(quoted "$now_at")" "$file"; then
        printf '%-13s passed before, kept\n' "$section"
        continue
    fi
    rm -f "$file" "$out/$section.result"
    limit=$(($(limit_of "$section") * patience))
    began=$(date +%s)
    set -- --section "$section" --jobs "$jobs" --layers "$layers" --build "$build"
    [ -z "$archs" ] || set -- "$@" --archs "$archs"
    [ "$no_gpu" = no ] || set -- "$@" --no-gpu
    code=0
    timeout -k 10 "$limit" sh "$self" "$@" "$out" >"$out/$section.log" 2>&1 || code=$?
    seconds=$(($(date +%s) - began))
    if [ ! -s "$out/$section.result" ]; then
        why="ended with exit code $code; see $section.log"
        [ "$code" -ne 124 ] && [ "$code" -ne 137 ] || why="not done within $limit s; see $section.log (what is done is not done again; --patience allows more)"
        (finish failed "$why")
    fi
    {
        printf '{"section": "%s", "commit": %s, "seconds": %d, ' "$section" "$(quoted "$now_at")" "$seconds"
        sed '1s/^{//' "$out/$section.result"
    } >"$file.new"
    mv "$file.new" "$file"
    rm "$out/$section.result"
    status=$(status_of "$file")
    printf '%-13s %s in %d s: %s\n' "$section" "$status" "$seconds" "$(sed -n 's/.*"why": "\(\([^"\\]\|\\.\)*\)".*/\1/p' "$file" | sed 's/\\\(.\)/\1/g')"
    [ "$status" != failed ] || failed=yes
done

{
    printf '{"format": "tierpack-gpu-check", "format_version": 1, "commit": %s, "time": "%s",\n' "$(quoted "$now_at")" "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf ' "machine": {"cpu": %s, "cores": %d, "memory_bytes": %s},\n' "$(quoted "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)")" "$(nproc)" \
        "$(awk '/^MemTotal/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)"
    printf ' "gpu": {"name": %s, "compute_capability": %s, "memory": %s, "driver": %s, "unavailable": %s},\n' "$(quoted "$(ask_gpu name)")" \
        "$(quoted "$(ask_gpu compute_cap)")" "$(quoted "$(ask_gpu memory.total)")" "$(quoted "$(ask_gpu driver_version)")" "$(quoted "$problem")"
    nvcc=$(find_nvcc)
    printf ' "toolkit": %s,\n "sections": [' "$(quoted "$([ -z "$nvcc" ] || "$nvcc" --version | sed -n 's/.*release [^,]*, V*\(.*\)/\1/p')")"
    comma=
    for section in $all; do
        [ -s "$out/$section.json" ] || continue
        printf '%s\n' "$comma"
        printf '%s' "$(cat "$out/$section.json")"
        comma=,
    done
    printf '\n ]}\n'
} >"$out/gpu_check.json.new"
mv "$out/gpu_check.json.new" "$out/gpu_check.json"

if [ "$(status_of "$out/speed.json")" = passed ] && command -v jq >/dev/null; then
    jq -r '.figures | def gb: (. // 0) / 1e9 * 10 | round / 10;
        "\nmemory of the GPU \(.memory_bytes_s | gb) GB/s, copies to it \(.copy_pinned_bytes_s | gb) GB/s; a token reads \((.token_weight_bytes // 0) / 1e6 | round) MB of weights",
        (["vram_25", "vram_50", "vram_100", "cpu"][] as $k | .[$k] as $r | $r.rates[]? |
         "\($k): prompt \(.prompt): prefill \(.prefill_tokens_s | round), decode \(.decode_tokens_s * 10 | round / 10) tokens/s; \(($r.experts.vram_hit_rate // 0) * 1000 | round / 10) % of experts found in VRAM, \($r.experts.move_bytes / 1e6 | round) MB changed tier, \(($r.experts.gpu_copy_bytes // 0) / 1e6 | round) MB copied to be computed"),
        "decode with all experts in VRAM: \((.decode_share_of_bound // 0) * 1000 | round / 10) % of the bound of memory bandwidth, \(.decode_bound_tokens_s // 0 | round) tokens/s"' "$out/speed.json"
fi
echo "Results: $out/gpu_check.json"
[ "$failed" = no ]
