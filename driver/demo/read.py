"""Stage 1 of the demo: read a year of flights from CSV, and hand the table on."""

from handover import Handover

import flights


def main() -> None:
    handover = Handover("read", __doc__)
    table = flights.load("flights")
    handover.write(table)


if __name__ == "__main__":
    main()
