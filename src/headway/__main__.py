"""`python -m headway`"""

from headway.view.cli import main

if __name__ == "__main__":
    main()
