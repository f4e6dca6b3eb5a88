// Encodes JSON strings, one a line, with Hugging Face's JavaScript tokenizers; ids as JSON arrays, one a line.
// node reference.mjs TOKENIZER.json < texts > ids      needs @huggingface/tokenizers (NODE_MODULES names the folder)
// The normaliser is left out: GGUF files do not carry it (docs/text.md).
// node reference.mjs --unassigned     prints the code points that this JavaScript engine's Unicode tables lack
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

if (process.argv[2] === "--unassigned") {
  const out = [];
  for (let code = 0; code < 0x110000; ++code) if (/^\p{Cn}$/u.test(String.fromCodePoint(code))) out.push(code);
  console.log(JSON.stringify(out));
} else {
  const require = createRequire((process.env.NODE_MODULES ?? process.cwd()) + "/x.js");
  const { Tokenizer } = require("@huggingface/tokenizers");
  const data = JSON.parse(readFileSync(process.argv[2], "utf8"));
  data.normalizer = null;
  const tokenizer = new Tokenizer(data, {});
  for await (const line of createInterface({ input: process.stdin })) {
    const text = JSON.parse(line);
    console.log(JSON.stringify(text === "" ? [] : Array.from(tokenizer.encode(text, { add_special_tokens: false }).ids)));
  }
}
