#!/usr/bin/env python3
"""Holds our template engine to Jinja2 on small templates, one construct each. Usage: snippet_conformance.py TEMPLATE_TOOL [GROUP]..."""
import sys

import reference
import snippets


def main():
    tool, groups = sys.argv[1], sys.argv[2:] or list(snippets.GROUPS)
    bad = count = 0
    for group in groups:
        cases = [(template, snippets.VARIABLES) for template in snippets.GROUPS[group]]
        bad += reference.compare(tool, cases)
        count += len(cases)
    print("%d templates, %d differences" % (count, bad))
    return 1 if bad or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
