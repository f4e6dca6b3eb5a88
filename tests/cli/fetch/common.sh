# A hub over the directory "hub" on a free port; its URL is in $hub. Ends with the script.
hub_server --root hub --print-port >port &
hub_pid=$!
trap 'kill $hub_pid 2>/dev/null' EXIT
while [ ! -s port ]; do sleep 0.05; done
hub=http://127.0.0.1:$(cat port)
# Without what differs from run to run: ports, rates, times, temporary numbers.
plain() { sed -E "s#127\.0\.0\.1:[0-9]+#HOST#g; s#[0-9.]+ [KMG]?i?B/s#RATE#g; s# in [0-9.]+ m?s# in TIME#g; s#[0-9.]+ (GiB|TiB) free#SPACE free#g"; }
