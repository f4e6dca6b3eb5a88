"""Jinja2 set up as transformers does it, the reference that our template engine is held to; and the tool under test."""
import copy
import datetime
import functools
import json
import subprocess

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = 1_755_000_000  # 2025-08-12 12:00:00 UTC; both sides run with TZ=UTC


class Generation(jinja2.ext.Extension):
    """The {% generation %} tag: its body goes through a call block, as in transformers."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.utcfromtimestamp(NOW).strftime(form)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


ENVIRONMENT = environment()


@functools.lru_cache(maxsize=64)
def compiled(template):
    return ENVIRONMENT.from_string(template)


def render_reference(template, variables):
    """-> ("text", result), ("raised", message of raise_exception) or ("error", description)."""
    try:
        return "text", compiled(template).render(**copy.deepcopy(variables))
    except Raised as error:
        return "raised", str(error)
    except RecursionError as error:
        return "error", "RecursionError: %s" % error
    except Exception as error:  # whatever a template can provoke
        return "error", "%s: %s" % (type(error).__name__, error)


def render_tool(tool, cases):
    """Renders (template, variables) pairs with our engine; yields in the form of render_reference."""
    lines = "".join(json.dumps({"template": t, "variables": json.dumps(v)}) + "\n" for t, v in cases)
    run = subprocess.run([tool, "-", "--now", str(NOW)], input=lines.encode(), stdout=subprocess.PIPE, env={"TZ": "UTC"})
    answers = run.stdout.decode().split("\n")[:-1]
    for i in range(len(cases)):
        if i >= len(answers):
            yield "error", "the tool stopped with code %d" % run.returncode
            continue
        answer = json.loads(answers[i])
        if "text" in answer:
            yield "text", answer["text"]
        else:
            yield answer["error"], answer["message"]


def same(expected, got):
    """Whether the two outcomes agree: equal text, equal message of raise_exception, or a failure on both sides."""
    if expected[0] == "text":
        return got == expected
    if expected[0] == "raised":
        return got == ("usage", expected[1])
    return got[0] in ("usage", "corrupt", "unsupported", "capacity")


def compare(tool, cases, limit=100):
    """Prints up to `limit` disagreements; returns their number."""
    bad = 0
    for (template, variables), got in zip(cases, render_tool(tool, cases)):
        expected = render_reference(template, variables)
        if not same(expected, got):
            bad += 1
            if bad > limit:
                continue
            print("DIFFERENT\n  template:  %r\n  variables: %.2000r\n  jinja2:    %.3000r\n  ours:      %.3000r"
                  % (template[:3000], variables, expected, got))
    return bad
