// Holds `tierpack fetch` and the hub's own JavaScript client, @huggingface/hub, against each other: each must use what the
// other put into the hub's cache, and both meet the same faults of the test hub. Not part of `make test`: it needs Node.js 20
// and the npm package, installed anywhere outside this repository.
//
//   cp tests/conformance/hub_client/package.json /some/folder/ && npm install --prefix /some/folder
//   node tests/conformance/hub_client/check.mjs --client /some/folder/node_modules --build build
//
// Prints one line a check, then the table of faults, and exits 1 if a check of ours failed. Without the package it says so
// and exits 77, which CTest and Automake read as "skipped".
import { spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const { values: args } = parseArgs({ options: { client: { type: 'string' }, build: { type: 'string', default: 'build' } } });
let hubClient;
let version;
try {
  const require = createRequire(resolve(args.client ?? '.') + '/');
  hubClient = require('@huggingface/hub');
  version = JSON.parse(fs.readFileSync(join(resolve(args.client), '@huggingface/hub/package.json'))).version;
} catch {
  console.log('skipped: @huggingface/hub is not installed; see the head of this file');
  process.exit(77);
}
console.debug = () => {};  // the client tells every download

const work = fs.mkdtempSync(join(tmpdir(), 'tierpack-hub-client-'));
const root = join(work, 'hub');
fs.mkdirSync(join(root, 'o/m/sub'), { recursive: true });
const files = {
  'model.bin': randomBytes(3_000_000),
  'sub/second.bin': randomBytes(1_500_000),
  'config.json': Buffer.from('{"hidden_size": 64}\n'),
};
for (const [name, content] of Object.entries(files)) fs.writeFileSync(join(root, 'o/m', name), content);

const hub = spawn(resolve(args.build, 'hub_server'), ['--root', root, '--port', '0', '--print-port'], { stdio: ['ignore', 'pipe', 'inherit'] });
const [line] = await once(hub.stdout, 'data');
const url = `http://127.0.0.1:${line.toString().trim()}`;
process.on('exit', () => {
  hub.kill();
  fs.rmSync(work, { recursive: true, force: true });
});

const control = async (what, body) => (await fetch(`${url}/__control/${what}`, body ? { method: 'POST', body: JSON.stringify(body) } : {})).json();
// Requests for content since the last reset, small files included.
const payload = async () => (await control('requests')).filter((r) => r.on_cdn || r.target.includes('/resolve/')).length;
let caches = 0;
const freshCache = () => join(work, `cache${caches++}`);

function tierpack(...command) {
  const run = spawnSync(resolve(args.build, 'tierpack'), ['-q', ...command], { encoding: 'utf8', timeout: 60_000 });
  return { code: run.status, output: run.stdout + run.stderr };
}
const ourFetch = (cache, ...more) =>
  tierpack('fetch', 'hf:o/m', '--endpoint', url, '--hf-cache', cache, '--retries', '3', '--retry-wait', '0.01', '--stall-timeout', '2', ...more);
// Their snapshotDownload, given up after some seconds; resolves to '' or the error.
async function theirDownload(cache) {
  const limit = AbortSignal.timeout(10_000);
  const limited = (input, init) => fetch(input, { ...init, signal: limit });
  try {
    await hubClient.snapshotDownload({ repo: 'o/m', hubUrl: url, cacheDir: cache, fetch: limited });
    return '';
  } catch (error) {
    return limit.aborted ? 'still waiting after 10 s' : String(error?.message ?? error);
  }
}

function snapshotOf(cache) {
  const snapshots = join(cache, 'models--o--m/snapshots');
  const [commit] = fs.existsSync(snapshots) ? fs.readdirSync(snapshots) : [];
  return commit ? join(snapshots, commit) : undefined;
}
// What stands under the file's name: 'right', 'absent' or 'wrong'.
function found(cache, name) {
  const path = snapshotOf(cache) && join(snapshotOf(cache), name);
  if (!path || !fs.existsSync(path)) return 'absent';
  return fs.readFileSync(path).equals(files[name]) ? 'right' : 'wrong';
}
// A blob whose name is not the hash of its content.
function wrongBlob(cache) {
  const blobs = join(cache, 'models--o--m/blobs');
  if (!fs.existsSync(blobs)) return false;
  return fs.readdirSync(blobs).some((name) => /^[0-9a-f]{64}$/.test(name) &&
    createHash('sha256').update(fs.readFileSync(join(blobs, name))).digest('hex') !== name);
}

let failed = 0;
function expect(name, condition, note = '') {
  if (!condition) failed++;
  console.log(`${condition ? 'ok   ' : 'FAIL '} ${name}${note ? `: ${note}` : ''}`);
}

// --- Each reads what the other wrote.
const ours = freshCache();
let run = ourFetch(ours);
expect('tierpack fetches into the cache', run.code === 0, run.output.trim());
const scan = await hubClient.scanCacheDir(ours);
const [repo] = scan.repos;
expect('scanCacheDir finds the repository', scan.warnings.length === 0 && scan.repos.length === 1 && repo.id.name === 'o/m',
  scan.warnings.map(String).join('; '));
expect('... its revision by name', repo.revisions.length === 1 && repo.revisions[0].refs.includes('main'));
// The scanner does not look into folders of a snapshot.
expect('... and its files', repo.revisions[0].files.map((f) => `${f.path.split('/').pop()} ${f.blob.size}`).sort().join() ===
  ['config.json 20', 'model.bin 3000000'].join());
await control('reset');
let problem = await theirDownload(ours);
expect('snapshotDownload uses them without asking for content', problem === '' && (await payload()) === 0, problem);

const theirs = freshCache();
problem = await theirDownload(theirs);
expect('snapshotDownload fetches into a fresh cache', problem === '' && found(theirs, 'sub/second.bin') === 'right', problem);
await control('reset');
run = ourFetch(theirs);
expect('tierpack uses its files, after hashing, without asking for content', run.code === 0 && (await payload()) === 0, run.output.trim());
run = tierpack('verify', join(theirs, 'models--o--m'));
expect('tierpack verify proves a cache that the client wrote', run.code === 0);
const plain = join(work, 'plain');
await control('reset');
run = spawnSync(resolve(args.build, 'tierpack'), ['-q', 'fetch', 'hf:o/m', '--endpoint', url, '--to', plain],
  { encoding: 'utf8', env: { ...process.env, HF_HUB_CACHE: theirs } });
expect('tierpack copies them into a plain directory, too', run.status === 0 && (await payload()) === 0, run.stderr.trim());

// A byte of a blob flips on the disk.
const blob = fs.realpathSync(join(snapshotOf(theirs), 'model.bin'));
const handle = fs.openSync(blob, 'r+');
fs.writeSync(handle, Buffer.from([files['model.bin'][1000] ^ 1]), 0, 1, 1000);
fs.closeSync(handle);
problem = await theirDownload(theirs);
console.log(`note  snapshotDownload over a damaged blob: ${problem === '' ? 'reports success, ' : `${problem}, `}content ${found(theirs, 'model.bin')}`);
run = ourFetch(theirs);
expect('tierpack fetch notices the damaged blob', run.code === 3);
run = tierpack('verify', join(theirs, 'models--o--m'), '--repair', '--endpoint', url);
expect('tierpack verify --repair replaces it', run.code === 0 && found(theirs, 'model.bin') === 'right', run.output.trim());

// --- The same faults for both, on the content of the larger file (only its signed URL has a query). The client first asks for
// one byte to learn the size; its faults begin with the request after that.
const at = (fault, times = 1) => [{ match: 'model.bin?', times, ...fault }];
const faults = [
  ['none', []],
  ['connection closed in the middle, once', at({ action: 'truncate', bytes: 1_000_000 })],
  ['connection reset in the middle, once', at({ action: 'reset', bytes: 1_000_000 })],
  ['connection closed in the middle, always', at({ action: 'truncate', bytes: 1_000_000 }, -1)],
  ['chunked body cut short, once', at({ action: 'chunked_cut', bytes: 1_000_000 })],
  ['body ends early, length says so (short 206)', at({ action: 'short', bytes: 1_000_000 })],
  ['one byte wrong, once', at({ action: 'corrupt', bytes: 70_000 })],
  ['one byte wrong, always', at({ action: 'corrupt', bytes: 70_000 }, -1)],
  ['bytes shifted by four', at({ action: 'shift' })],
  ['another file of the same length', at({ action: 'other_file', text: 'other' })],
  ['200 with everything to a range', at({ action: 'full' }, -1)],
  ['200 without length to a range', at({ action: 'full_unknown' }, -1)],
  ['206 from byte 0 whatever was asked', at({ action: 'wrong_start' }, -1)],
  ['206 without Content-Range', at({ action: 'no_content_range' }, -1)],
  ['Content-Range with another total', at({ action: 'total', bytes: 5 }, -1)],
  ['more bytes than promised', at({ action: 'extra' })],
  ['a log-in page with status 200', at({ action: 'html' })],
  ['503, twice', at({ action: 'status', status: 503 }, 2)],
  ['429 with Retry-After, once', at({ action: 'status', status: 429, headers: { 'Retry-After': '1' } })],
  ['signed URL expired (403), once', at({ action: 'status', status: 403 })],
  ['silence in the middle, once', at({ action: 'stall', bytes: 1_000_000, seconds: 30 })],
];
fs.mkdirSync(root, { recursive: true });
fs.writeFileSync(join(root, 'other'), randomBytes(files['model.bin'].length));

function verdict(cache, success, why) {
  const states = Object.keys(files).map((name) => found(cache, name));
  if (states.includes('wrong') || wrongBlob(cache)) return success ? 'WRONG BYTES, reports success' : 'wrong bytes under the final name, reports an error';
  if (success) return states.every((s) => s === 'right') ? 'right' : 'reports success, files missing';
  return `fails (${why}), nothing wrong published`;
}
const rows = [];
for (const [name, list] of faults) {
  const row = [name];
  for (const who of ['theirs', 'ours']) {
    const cache = freshCache();
    await control('reset');
    await control('faults', list.map((fault) => ({ ...fault, skip: who === 'theirs' ? 1 : 0 })));
    if (who === 'theirs') {
      const why = await theirDownload(cache);
      row.push(verdict(cache, why === '', why.split('\n')[0].slice(0, 60)));
    } else {
      const { code, output } = ourFetch(cache);
      row.push(verdict(cache, code === 0, `exit ${code}`));
      const safe = !row.at(-1).toLowerCase().includes('wrong bytes') && !row.at(-1).includes('missing');
      if (!safe) console.log(output);
      expect(`tierpack under "${name}"`, safe, row.at(-1));
    }
  }
  rows.push(row);
}
await control('reset');
console.log(`\n| fault | @huggingface/hub ${version} | tierpack |\n|---|---|---|`);
for (const row of rows) console.log(`| ${row.join(' | ')} |`);
process.exit(failed > 0 ? 1 : 0);
