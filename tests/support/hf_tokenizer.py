"""A tiny valid byte-level BPE tokenizer with the pre-tokenizer of an architecture, for hf_checkpoint.py."""
import json
import os

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
GLM4 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
GPT4O = (f"{PREFIX}{UPPER}*{LOWER}+{CONTRACTIONS}?|{PREFIX}{UPPER}+{LOWER}*{CONTRACTIONS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
            r" ?[\p{P}\p{S}]+[\r\n]*|" + SPACES]
REGEXES = {"qwen3moe": [QWEN2], "qwen3next": [QWEN2], "qwen35moe": [QWEN35], "qwen4exp": [QWEN35],
           "deepseek": DEEPSEEK, "gpt_oss": [GPT4O], "glm4moe": [GLM4]}
# (text, special); the first one ends a text, the second one a turn
QWEN_ADDED = [("<|endoftext|>", True), ("<|im_end|>", True), ("<|im_start|>", True), ("<think>", False),
              ("</think>", False), ("<tool_call>", False), ("</tool_call>", False)]
ADDED = {"deepseek": [("<｜end▁of▁sentence｜>", True), ("<｜begin▁of▁sentence｜>", True), ("<｜User｜>", False),
                      ("<｜Assistant｜>", False), ("<think>", False), ("</think>", False)],
         "gpt_oss": [("<|endoftext|>", True), ("<|return|>", True), ("<|start|>", True), ("<|message|>", True),
                     ("<|end|>", True), ("<|channel|>", True), ("<|constrain|>", True), ("<|call|>", True)],
         "glm4moe": [("<|endoftext|>", True), ("<|user|>", True), ("[gMASK]", True), ("<sop>", True),
                     ("<|system|>", True), ("<|assistant|>", True), ("<|observation|>", True), ("<think>", False),
                     ("</think>", False)]}
LOOP = "{% for m in messages %}"
TEMPLATES = {
    "qwen": LOOP + "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "deepseek": "{{ bos_token }}" + LOOP + "{% if m.role == 'user' %}{{ '<｜User｜>' + m.content }}{% else %}"
                "{{ '<｜Assistant｜>' + m.content + eos_token }}{% endif %}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}",
    "gpt_oss": LOOP + "{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
    "glm4moe": "[gMASK]<sop>" + LOOP + "{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"}
MERGES = [("Ġ", "t"), ("h", "e"), ("i", "n"), ("Ġt", "he"), ("e", "r"), ("a", "n"), ("Ġ", "a"), ("1", "2")]


def byte_alphabet():
    """Character of each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]


def added_tokens(arch):
    first = 256 + len(MERGES)
    return [{"id": first + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": special} for i, (text, special) in enumerate(ADDED.get(arch, QWEN_ADDED))]


def write_tokenizer(directory, arch, rng):
    """tokenizer.json, tokenizer_config.json and generation_config.json; returns the id of the end of a text."""
    vocab = {character: i for i, character in enumerate(sorted(byte_alphabet()))}
    for a, b in MERGES:
        vocab[a + b] = len(vocab)
    added = added_tokens(arch)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    splits = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
              for regex in REGEXES[arch]]
    merges = [[a, b] for a, b in MERGES] if rng.random() < 0.5 else [f"{a} {b}" for a, b in MERGES]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "NFC"} if arch.startswith("qwen") else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits + [byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges}}
    texts = [token["content"] for token in added]
    fields = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    config = {"add_bos_token": arch == "deepseek", "bos_token": texts[1] if arch == "deepseek" else None,
              "eos_token": texts[0 if arch == "deepseek" else 1], "pad_token": texts[0], "unk_token": None,
              "clean_up_tokenization_spaces": False, "model_max_length": 4096,
              "added_tokens_decoder": {str(t["id"]): {f: t[f] for f in fields} for t in added},
              "chat_template": TEMPLATES[arch if arch in TEMPLATES else "qwen"]}
    ends = [added[0]["id"]] if arch == "deepseek" else [added[1]["id"], added[0]["id"]]
    generation = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
                  "eos_token_id": ends if len(ends) > 1 else ends[0]}
    for name, content in [("tokenizer.json", tokenizer), ("tokenizer_config.json", config),
                          ("generation_config.json", generation)]:
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=2)
    return added[0]["id"]
