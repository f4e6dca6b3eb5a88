#!/usr/bin/env python3
"""Holds our template engine to Jinja2 on whole chat templates, each with every conversation of conversations.py.

Usage: family_conformance.py TEMPLATE_TOOL FILE_OR_FOLDER...    templates: .jinja files, tokenizer_config.json, or .gguf
"""
import json
import os
import sys

import conversations
import reference

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../conformance/tokenizers"))


def templates(path):
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            yield from templates(os.path.join(path, name))
    elif path.endswith(".jinja"):
        yield path, open(path, encoding="utf-8", newline="").read()
    elif path.endswith("tokenizer_config.json"):
        found = json.load(open(path, encoding="utf-8")).get("chat_template")
        named = found if isinstance(found, list) else [{"name": "default", "template": found}] if found else []
        for one in named:
            yield "%s (%s)" % (path, one["name"]), one["template"]
    elif path.endswith(".gguf"):
        from gguf_metadata import read_metadata
        yield path, read_metadata(path)["tokenizer.chat_template"]


def main():
    tool, bad, count = sys.argv[1], 0, 0
    for path in sys.argv[2:]:
        for name, template in templates(path):
            cases = [(template, variables) for variables in conversations.all_variables()]
            differences = reference.compare(tool, cases, limit=3)
            rendered = sum(reference.render_reference(*case)[0] == "text" for case in cases)
            print("%s: %d conversations, %d of them rendered, %d differences" % (name, len(cases), rendered, differences))
            bad += differences
            count += len(cases) if rendered else 0
    return 1 if bad or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
