"""Stage 2 of the demo: join flights with weather and planes, derive features, drop gaps."""

import flights
import pandas as pd
from handover import Handover

LATE = 15  # minutes


def features(table: pd.DataFrame) -> pd.DataFrame:
    weather = flights.load("weather").drop(columns=["year", "month", "day", "hour"])
    planes = flights.load("planes").rename(columns={"year": "built"})
    table = table.merge(weather, on=["origin", "time_hour"])
    table = table.merge(planes[["tailnum", "built", "seats", "engines"]], on="tailnum")
    day = pd.to_datetime(table[["year", "month", "day"]])
    made = pd.DataFrame(
        {
            "month": table["month"],
            "weekday": day.dt.day_of_week,
            "minute_of_day": table["sched_dep_time"] // 100 * 60 + table["sched_dep_time"] % 100,
            "carrier": table["carrier"].astype("category"),
            "origin": table["origin"].astype("category"),
            "distance": table["distance"],
            "age": table["year"] - table["built"],
            "seats": table["seats"],
            "engines": table["engines"],
            "temp": table["temp"],
            "humid": table["humid"],
            "wind_speed": table["wind_speed"],
            "precip": table["precip"],
            "visib": table["visib"],
            "late": table["arr_delay"].gt(LATE).where(table["arr_delay"].notna()),
        }
    )
    return made.dropna().astype({"late": "bool"}).reset_index(drop=True)


def main() -> None:
    handover = Handover("clean", __doc__)
    table = handover.read()
    handover.write(features(table))


if __name__ == "__main__":
    main()
