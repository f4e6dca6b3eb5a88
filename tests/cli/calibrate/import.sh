# Profiles from counts of other programs, without running the model; what is refused, and how it says so.
try() {
  code=0
  "$@" >out.txt 2>&1 || code=$?
  # Names of profiles depend on the version of the program.
  sed 's/profile [0-9a-f]\{16\}/profile ID/; s/"id":"[0-9a-f]*"/"id":"ID"/' out.txt
  echo "  exit $code"
}
exec 2>&1
tierpack repack "$SOURCE_DIR/models/pebble" --to p.tierpack -q >/dev/null
python3 - <<'END'
import struct

def text(s):
    return struct.pack("<Q", len(s)) + s.encode()

def gguf(name, tensors):
    """An importance matrix: (tensor, columns, counts) each."""
    head = text("general.type") + struct.pack("<i", 8) + text("imatrix")
    infos, data = b"", b""
    count = 0
    for tensor, columns, counts in tensors:
        for suffix, shape, values in ((".in_sum2", (columns, len(counts)), [1.0] * (columns * len(counts))),
                                      (".counts", (1, len(counts)), counts)):
            infos += text(tensor + suffix) + struct.pack("<IqqiQ", 2, *shape, 0, len(data))
            data += struct.pack(f"<{len(values)}f", *values)
            data += bytes(-len(data) % 32)
            count += 1
    head = b"GGUF" + struct.pack("<Iqq", 3, count, 1) + head + infos
    with open(name, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)

def stacks(layer, counts, hidden=256, ff=96):
    return [(f"blk.{layer}.ffn_{part}_exps.weight", ff if part == "down" else hidden, counts) for part in ("gate", "up", "down")]

counts = [[(layer * 7 + expert * 5) % 32 for expert in range(32)] for layer in range(6)]
all_layers = [stack for layer in range(6) for stack in stacks(layer, counts[layer])]
gguf("good.gguf", all_layers)
gguf("short.gguf", all_layers[:15])
gguf("even.gguf", [stack for layer in range(6) for stack in stacks(layer, [9] * 32)])
gguf("other.gguf", [stack for layer in range(6) for stack in stacks(layer, counts[layer][:16])])
odd = list(all_layers)
odd[4] = (odd[4][0], odd[4][1], [c + 1 for c in odd[4][2]])
gguf("odd.gguf", odd)
with open("old.dat", "wb") as file:
    name = b"blk.0.ffn_up_exps.weight"
    file.write(struct.pack("<ii", 1, len(name)) + name + struct.pack("<iif", 1, 1, 2.0))
with open("table.csv", "w") as file:
    file.write("layer,expert,count\n" + "".join(f"{l},{e},{counts[l][e]}\n" for l in range(6) for e in range(32)))
with open("workloads.csv", "w") as file:
    file.write("layer,expert,a,b,all\n" + "".join(f"{l},{e},{e},{31 - e},31\n" for l in range(6) for e in range(32)))
with open("trace.csv", "w") as file:
    file.write("token,layer,e0,e1,e2,e3\n" + "".join(f"{t},{l},{t},{t + 1},{t + 2},{t + 3}\n" for t in range(8) for l in range(6)))
END
try tierpack calibrate p.tierpack --import-imatrix good.gguf --out imatrix.json
try tierpack calibrate p.tierpack --import-counts table.csv --out table.json --json
# The same counts, whatever they came in.
python3 - <<'END'
import json
a, b = json.load(open("imatrix.json")), json.load(open("table.json"))
print(a["layers"] == b["layers"], a["model"] == b["model"], a["corpora"][0]["name"], b["corpora"][0]["name"])
END
try tierpack calibrate p.tierpack --import-imatrix odd.gguf --out odd.json
try tierpack calibrate p.tierpack --import-counts trace.csv --import-counts workloads.csv --out two.json
# A mix by weight, in which the trace is three quarters.
try tierpack calibrate p.tierpack --import-counts trace.csv=3 --import-counts workloads.csv --out mix.json --json
try tierpack calibrate p.tierpack --merge imatrix.json=0.5 --merge table.json=0.5 --out same.json
# Such a profile orders a pack.
try tierpack repack p.tierpack --to hot.tierpack --profile two.json -q --json >/dev/null
cmp hot.tierpack/profile.json two.json
ls ./*.json
echo "--- refused"
for imatrix in short even other; do try tierpack calibrate p.tierpack --import-imatrix $imatrix.gguf --out never.json; done
try tierpack calibrate p.tierpack --import-imatrix old.dat --out never.json
try tierpack calibrate p.tierpack --import-imatrix table.csv --out never.json
try tierpack calibrate p.tierpack --import-imatrix none.gguf --out never.json
try tierpack calibrate p.tierpack --import-counts good.gguf --out never.json
sed 's/^5,31,.*/5,32,1/' table.csv >expert.csv
try tierpack calibrate p.tierpack --import-counts expert.csv --out never.json
grep -v ^5 table.csv >layers.csv
try tierpack calibrate p.tierpack --import-counts layers.csv --out never.json
try tierpack calibrate p.tierpack --merge table.json=0 --out never.json
try tierpack calibrate p.tierpack --merge table.json=x --out never.json
sed 's/"routing_id": "...../"routing_id": "00000/' table.json >foreign.json
try tierpack calibrate p.tierpack --merge foreign.json --out never.json
try tierpack calibrate p.tierpack --out never.json
test ! -e never.json
