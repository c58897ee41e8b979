"""`python -m oncemq`: the same as the command `once`."""

from oncemq.cli.main import main

if __name__ == "__main__":
    main()
