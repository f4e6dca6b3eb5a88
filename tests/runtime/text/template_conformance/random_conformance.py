#!/usr/bin/env python3
"""Holds our template engine to Jinja2 on random small templates.

Usage: random_conformance.py TEMPLATE_TOOL [COUNT [SEED]]
Templates come from a grammar that leans on what is easy to get wrong: white space control, scopes, precedence, undefined
values, mixed types. Most are valid; errors must be errors on both sides.
"""
import random
import re
import sys

import reference
import snippets

NAMES = ["name", "empty", "number", "negative", "real", "yes", "no", "nothing", "words", "numbers", "nested", "pairs", "mixed", "d", "users",
         "text", "unicode", "messages", "x", "y", "z", "ns", "zz", "m"]
FILTERS = ["trim", "upper", "lower", "length", "list", "string", "int", "float", "first", "last", "sort", "reverse", "join", "join(', ')", "default('q')",
           "default('q', true)", "tojson", "tojson(indent=1)", "items", "unique", "abs", "round", "capitalize", "title", "replace('a', 'b')", "map('upper')",
           "map(attribute='name')", "select", "reject('string')", "selectattr('on')", "dictsort", "indent", "sum", "min", "max", "safe", "e", "batch(2)", "count",
           "select('defined')", "map('string')", "list|length", "trim('a')", "truncate(5)", "center(9)", "rejectattr('age', 'gt', 26)"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "boolean", "true", "false", "integer", "float", "odd", "even",
         "divisibleby 3", "eq 1", "in [1, 'a']", "lower", "upper", "sameas none", "callable", "not defined", "not string", "not none"]
METHODS = ["upper()", "lower()", "strip()", "split()", "split('a')", "startswith('W')", "endswith('d')", "replace('o', '0')", "items()", "keys()", "get('a')",
           "get('zz', 1)", "title()", "find('o')", "count('a')", "lstrip()", "rstrip('d')", "values()", "join(words)", "split(',', 1)", "splitlines()", "index('a')"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, items):
        return items[self.rng.randrange(len(items))]

    def chance(self, p):
        return self.rng.random() < p

    def atom(self):
        kind = self.rng.randrange(12)
        if kind < 5:
            return self.pick(NAMES)
        if kind < 7:
            return str(self.rng.randrange(-3, 8))
        if kind == 7:
            return self.pick(["'a'", "'World'", "\"it's\"", "''", "'a,b'", "'%s!'", "'5'", "' x '", "'\\n'", "'é'"])
        if kind == 8:
            return self.pick(["true", "false", "none", "1.5", "0.0", "2.0", "True", "None"])
        if kind == 9:
            return "[" + ", ".join(self.atom() for _ in range(self.rng.randrange(4))) + "]"
        if kind == 10:
            return self.pick(["(1, 2)", "()", "{'a': 1}", "{}", "{'a': [1], 'b': none}", "(1,)", "range(3)", "loop", "loop.index", "loop.last", "varargs", "caller"])
        return "(" + self.expression(2) + ")"

    def expression(self, depth):
        if depth <= 0 or self.chance(0.2):
            return self.atom()
        kind = self.rng.randrange(14)
        inner = self.expression(depth - 1)
        if kind < 3:
            return inner + " " + self.pick(BINARY) + " " + self.expression(depth - 1)
        if kind < 5:
            return inner + self.pick([" | ", "|"]) + self.pick(FILTERS)
        if kind == 5:
            return inner + " is " + self.pick(TESTS)
        if kind == 6:
            return self.pick(["not ", "-", "+"]) + inner
        if kind == 7:
            return inner + " if " + self.expression(depth - 1) + self.pick(["", " else " + self.expression(depth - 1)])
        if kind == 8:
            return inner + "." + self.pick(["a", "name", "items", "x", "role", "content", "0", "last", "zz", "age"])
        if kind == 9 and self.chance(0.5):  # no literals: Jinja2 folds slices of constants, even of numbers
            return self.pick(NAMES) + "[" + self.pick(["1:", ":-1", "::-1", "::2", "-2:", "1:2", "3:0:-1", "x:", ":y"]) + "]"
        if kind == 9:
            return inner + "[" + self.pick(["0", "-1", "'a'", "'name'", "'items'", "x", "9", "none"]) + "]"
        if kind == 10:
            return inner + "." + self.pick(METHODS)
        if kind == 11:
            return "(" + inner + ")"
        if kind == 12:
            return self.pick(["dict(a=%s)", "namespace(x=%s)", "range(%s)", "m(%s)", "f(%s)", "[%s]", "{'k': %s}", "(%s, 1)", "m(a=%s)", "dict(%s)", "joiner(%s)", "f(1, %s)"]) % inner
        return inner + " ~ " + self.expression(depth - 1)

    def gap(self):
        return self.pick(["", "", "", " ", "\n", "  ", "\n\n", "\n  ", " \n", "\t", "x", "x\n", " y ", "\r\n", "a\n  b"])

    def tag(self, body):
        return "{%" + self.pick(["", "", "", "-", "+"]) + self.pick([" ", " ", "", "\n"]) + body + self.pick([" ", " ", "\n", ""]) + self.pick(["", "", "", "-", "+"]) + "%}"

    def output(self, depth):
        return "{{" + self.pick(["", "", "-"]) + " " + self.expression(depth) + " " + self.pick(["", "", "-"]) + "}}"

    def block(self, depth):
        kind = self.rng.randrange(16)
        if depth <= 0 or kind < 5:
            return self.output(2)
        body = self.body(depth - 1)
        value = self.expression(2)
        name = self.pick(["x", "y", "z", "name", "ns"])
        if kind == 5:
            return self.tag("if " + value) + body + self.pick(["", self.tag("elif " + self.expression(1)) + self.body(depth - 1)]) + self.pick(
                ["", self.tag("else") + self.body(depth - 1)]) + self.tag("endif")
        if kind in (6, 7):
            target = self.pick(["x", "y", "i", "k, v", "a, b", "name"])
            source = self.pick(["words", "numbers", "d.items()", "pairs", "users", "name", "range(3)", "messages", "d", "nested", value])
            return self.tag("for %s in %s%s" % (target, source, self.pick(["", "", " if " + self.expression(1)]))) + body + self.pick(
                ["", "", self.tag("else") + self.body(depth - 1)]) + self.tag("endfor")
        if kind == 8:
            return self.tag("set %s = %s" % (name, value)) + self.gap() + "{{ %s }}" % name
        if kind == 9:
            return self.tag("set " + name + self.pick(["", " | upper", " | trim"])) + body + self.tag("endset") + "[{{ %s }}]" % name
        if kind == 10:
            return self.tag("macro %s(%s)" % (self.pick(["m", "f"]), self.pick(["", "a", "a, b=1", "a=x, b='q'"]))) + body + self.tag("endmacro") + self.pick(
                ["{{ m() }}", "{{ m(1) }}", "{{ f(x, 2) }}", "{{ f(b=3) }}", "{{ m(%s) }}" % value, ""])
        if kind == 11:
            return self.tag("set ns = namespace(x=%s)" % value) + self.tag("set ns.x = ns.x ~ 1") + body + "{{ ns.x }}"
        if kind == 12:
            return self.tag("with x = %s, y = x" % value) + body + self.tag("endwith") + "{{ x }}"
        if kind == 13:
            return self.tag("filter " + self.pick(["upper", "trim", "indent(1)", "replace('a', '+')"])) + body + self.tag("endfilter")
        if kind == 14:
            return self.pick(["{# c #}", "{#- c #}", "{# c -#}", "{#+ c +#}", "{% raw %} {{ x }} {% endraw %}", "{%- raw -%} {% y %} {%- endraw -%}", self.tag("generation") + body + self.tag("endgeneration")])
        return self.tag("for q in numbers") + body + self.tag("if q == 1") + self.tag(self.pick(["break", "continue"])) + self.tag("endif") + "{{ q }}" + self.tag("endfor")

    def body(self, depth):
        return "".join(self.gap() + self.block(depth) for _ in range(self.rng.randrange(1, 3))) + self.gap()


def main():
    tool = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    cases = [(Maker(seed * 1000003 + i).body(3), snippets.VARIABLES) for i in range(count)]
    # Addresses in what Python prints of objects are no answer to compare with.
    printable = [case for case in cases if not re.search("0x[0-9a-f+]{6}", reference.render_reference(*case)[1].lower())]
    bad = reference.compare(tool, printable)
    rendered = sum(reference.render_reference(*case)[0] == "text" for case in printable)
    print("%d templates, %d of them rendered, %d differences" % (len(printable), rendered, bad))
    return 1 if bad or rendered == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
