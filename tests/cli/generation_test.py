#!/usr/bin/env python3
"""The commands run, serve and calibrate as processes: output, signals, exit codes.

Usage: generation_test.py TIERPACK MODEL_DIRECTORY [TEST...]. Makes a pack of the model in a scratch folder first.
"""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TIERPACK = MODEL = SCRATCH = PACK = None
QUESTION = "What is the capital of France?"


def tierpack(*args, stdin=subprocess.DEVNULL, text_in=None, **more):
    if text_in is not None:
        return subprocess.run([TIERPACK, *args], input=text_in, capture_output=True, text=True, timeout=300, **more)
    return subprocess.run([TIERPACK, *args], stdin=stdin, capture_output=True, text=True, timeout=300, **more)


class Run(unittest.TestCase):
    def test_answer_on_stdout_figures_on_stderr(self):
        done = tierpack("run", PACK, "-p", QUESTION, "--temp", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Paris", done.stdout)
        self.assertTrue(done.stdout.endswith("\n"))
        self.assertNotIn("tokens", done.stdout)
        self.assertRegex(done.stderr, r"prompt \d+ tokens, .*; answer \d+ tokens, .*ended by stop")
        self.assertRegex(done.stderr, r"logits [0-9a-f]{32}")
        self.assertRegex(done.stderr, r"experts [\d,]+ \(")

    def test_the_same_bits_for_any_threads_and_chunk(self):
        seen = set()
        for options in (["--threads", "1"], ["--threads", "2", "--chunk", "3"], ["--chunk", "64"]):
            done = tierpack("run", PACK, "-p", QUESTION, "--temp", "0", "--json", *options)
            answer = json.loads(done.stdout)
            seen.add((answer["answer"], answer["logits_xxh3"], tuple(answer["tokens"])))
        self.assertEqual(len(seen), 1, seen)

    def test_prompt_from_a_pipe(self):
        piped = tierpack("run", PACK, "--temp", "0", text_in=QUESTION + "\n")
        given = tierpack("run", PACK, "--temp", "0", "-p", QUESTION)
        self.assertEqual(piped.stdout, given.stdout)

    def test_raw_seed_limit_and_stop(self):
        raw = ["run", PACK, "--raw", "-p", "Once upon a time", "--json", "--temp", "1"]
        one = json.loads(tierpack(*raw, "--seed", "7", "--max-tokens", "16").stdout)
        again = json.loads(tierpack(*raw, "--seed", "7", "--max-tokens", "16").stdout)
        self.assertEqual(one["tokens"], again["tokens"])
        self.assertEqual(one["finish_reason"], "length")
        self.assertEqual(len(one["tokens"]), 16)
        stopped = json.loads(tierpack("run", PACK, "-p", QUESTION, "--temp", "0", "--json", "--stop", "Paris").stdout)
        self.assertNotIn("Paris", stopped["answer"])
        self.assertEqual(stopped["finish_reason"], "stop")

    def test_wrong_use_is_2(self):
        for args in (["-p", ""], ["-p", "x", "--temp", "9"], ["-p", "x", "--kv", "f8"], ["--raw", "--system", "s", "-p", "x"],
                     ["-p", "x", "--context", "100000"]):
            done = tierpack("run", PACK, *args)
            self.assertEqual(done.returncode, 2, (args, done.stderr))
            self.assertTrue(done.stderr.strip(), args)
            self.assertEqual(done.stdout, "", args)
        done = tierpack("run", PACK, "-p", "word " * 20000)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\d+ tokens.* \d+ tokens")

    def test_interrupt_stops_the_answer_with_130(self):
        process = subprocess.Popen([TIERPACK, "run", PACK, "--raw", "-p", "Once upon a time", "--temp", "1.5", "--stop", "never ever"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        # A short answer may have ended first.
        self.assertIn(process.returncode, (130, 0), err)
        if process.returncode == 130:
            self.assertIn("cancelled", err)


class Serve(unittest.TestCase):
    def start(self, *options):
        process = subprocess.Popen([TIERPACK, "serve", PACK, "--port", "0", "--json", *options],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        line = json.loads(process.stdout.readline())
        self.assertEqual(line["event"], "listening")
        self.assertEqual(line["pid"], process.pid)
        self.assertEqual(line["url"], f"http://127.0.0.1:{line['port']}")
        return process, line["port"]

    def get(self, port, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    def wait_ready(self, port):
        for _ in range(600):
            status, body = self.get(port, "/health")
            self.assertIn(json.loads(body)["status"], ("loading", "ready"))
            if status == 200:
                return
            time.sleep(0.05)
        self.fail("not ready within 30 s")

    def begin_stream(self, port, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        fields = {"messages": [{"role": "user", "content": "Tell me a story."}], "stream": True, **fields}
        connection.request("POST", "/v1/chat/completions", json.dumps(fields))
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        response.readline()
        return connection, response

    def test_answers_and_ends_with_0_on_sigterm(self):
        process, port = self.start()
        self.wait_ready(port)
        status, body = self.get(port, "/v1/models")
        self.assertEqual(json.loads(body)["data"][0]["id"], "pebble")
        connection, response = self.begin_stream(port, temperature=0, max_tokens=40)
        process.send_signal(signal.SIGTERM)
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        connection.close()
        self.assertEqual(process.wait(timeout=30), 0)
        self.assertIn(f"listening on http://127.0.0.1:{port}", process.stderr.read())
        self.assertEqual(process.stdout.read(), "")

    def test_cuts_a_long_answer_and_ends_with_130(self):
        process, port = self.start("--grace", "0", "--temp", "2", "--top-k", "0", "--top-p", "1")
        self.wait_ready(port)
        connection, response = self.begin_stream(port)
        process.send_signal(signal.SIGINT)
        rest = response.read()
        connection.close()
        code = process.wait(timeout=30)
        if b"[DONE]" in rest:
            self.assertEqual(code, 0)  # the answer was shorter than the signal's way
        else:
            self.assertIn(b'"code":"stopping"', rest)
            self.assertEqual(code, 130)

    def test_keys_from_a_file(self):
        path = os.path.join(SCRATCH, "keys")
        with open(path, "w") as file:
            file.write("# for the tests\n\n  first-key \nsecond-key\n")
        os.chmod(path, 0o600)
        process, port = self.start("--api-key-file", path)
        self.wait_ready(port)
        self.assertEqual(self.get(port, "/v1/models")[0], 401)
        self.assertEqual(self.get(port, "/v1/models", Authorization="Bearer first-key")[0], 200)
        self.assertEqual(self.get(port, "/v1/models", Authorization="Bearer # for the tests")[0], 401)
        process.terminate()
        self.assertEqual(process.wait(timeout=30), 0)

    def test_wrong_use(self):
        process, port = self.start()
        taken = tierpack("serve", PACK, "--port", str(port))
        self.assertEqual(taken.returncode, 1)
        self.assertIn("Address already in use", taken.stderr)
        self.assertEqual(tierpack("serve", os.path.join(SCRATCH, "nothing")).returncode, 2)
        self.assertEqual(tierpack("serve", PACK, "--port", "0", "--max-request-bytes", "x").returncode, 2)
        empty = os.path.join(SCRATCH, "empty")
        open(empty, "w").close()
        self.assertEqual(tierpack("serve", PACK, "--port", "0", "--api-key-file", empty).returncode, 2)

    def test_a_damaged_pack_ends_the_server_with_3(self):
        broken = os.path.join(SCRATCH, "broken.tierpack")
        subprocess.run(["cp", "-r", PACK, broken], check=True)
        with open(os.path.join(broken, "pack.json"), "r+b") as file:
            file.seek(100)
            file.write(b"\0\0\0\0")
        done = tierpack("serve", broken, "--port", "0")
        self.assertEqual(done.returncode, 3, done.stderr)


class Calibrate(unittest.TestCase):
    def corpus(self, name):
        return os.path.join(MODEL, "corpus", name + ".txt")

    def test_profile_table_and_merge(self):
        out = {name: os.path.join(SCRATCH, name + ".profile.json") for name in ("chat", "code", "both", "merged")}
        done = tierpack("calibrate", PACK, "--corpus", self.corpus("chat"), "--out", out["chat"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len([line for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]), 6, done.stdout)
        self.assertEqual(tierpack("calibrate", PACK, "--corpus", self.corpus("code"), "--out", out["code"]).returncode, 0)
        both = tierpack("calibrate", PACK, "--corpus", self.corpus("chat"), "--corpus", self.corpus("code"), "--out", out["both"], "--json")
        merged = tierpack("calibrate", PACK, "--merge", out["chat"], "--merge", out["code"], "--out", out["merged"], "--json")
        both, merged = json.loads(both.stdout), json.loads(merged.stdout)
        self.assertEqual(both["layers"], merged["layers"])
        self.assertEqual(both["tokens"], merged["tokens"])
        for layer in both["layers"]:
            self.assertEqual(layer["routed"], both["tokens"] * both["used"])
        again = tierpack("calibrate", PACK, "--corpus", self.corpus("chat"), "--out", out["both"], "--threads", "1", "--chunk", "31")
        self.assertEqual(again.returncode, 0)
        with open(out["chat"], "rb") as a, open(out["both"], "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_wrong_use_writes_nothing(self):
        out = os.path.join(SCRATCH, "never.json")
        junk = os.path.join(SCRATCH, "junk.json")
        with open(junk, "w") as file:
            file.write("{}")
        for args, code in ((["--out", out], 2), (["--corpus", self.corpus("none"), "--out", out], 2), (["--merge", junk, "--out", out], 3),
                           (["--corpus", self.corpus("chat")], 2),
                           (["--corpus", self.corpus("chat"), "--out", out, "--tokens-per-window", "99999"], 2)):
            done = tierpack("calibrate", PACK, *args)
            self.assertEqual(done.returncode, code, (args, done.stderr))
            self.assertFalse(os.path.exists(out))

    def test_interrupt_leaves_nothing(self):
        out = os.path.join(SCRATCH, "interrupted.json")
        corpus = os.path.join(SCRATCH, "large.txt")
        with open(self.corpus("story")) as story, open(corpus, "w") as large:
            large.write(story.read() * 50)
        process = subprocess.Popen([TIERPACK, "calibrate", PACK, "--corpus", corpus, "--out", out],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertEqual(stdout, "")
        self.assertEqual([name for name in os.listdir(SCRATCH) if name.startswith("interrupted")], [])


if __name__ == "__main__":
    TIERPACK, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as SCRATCH:
        PACK = os.path.join(SCRATCH, "pebble.tierpack")
        subprocess.run([TIERPACK, "repack", MODEL, "--to", PACK], check=True, capture_output=True)
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
