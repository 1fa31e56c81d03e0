"""Stage 1 of the demo: read a year of flights from CSV, and hand the table on."""

import flights
from handover import Handover


def main() -> None:
    handover = Handover("read", __doc__)
    table = flights.load("flights")
    handover.write(table)


if __name__ == "__main__":
    main()
