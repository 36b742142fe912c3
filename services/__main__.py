"""`python -m services` is the `carillon` command."""

from services.cli import main

if __name__ == "__main__":
    main(prog_name="carillon")
