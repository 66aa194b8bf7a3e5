"""Compiles everything ahead, as ``make setup`` does: ``python -m robolearn.arms.compiled``."""

from robolearn.arms.compiled.ahead import compile_all

if __name__ == "__main__":
    compile_all()
