"""Stage 3 of the demo: learn which flights arrive more than a quarter of an hour late."""

import json

from handover import Handover
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split


def main() -> None:
    handover = Handover("train", __doc__)
    table = handover.read()

    known = table.drop(columns="late")
    known_train, known_test, late_train, late_test = train_test_split(
        known, table["late"], test_size=0.2, random_state=0
    )
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    model.fit(known_train, late_train)
    score = roc_auc_score(late_test, model.predict_proba(known_test)[:, 1])
    print(
        json.dumps({"stage": "train", "rows": len(table), "roc_auc": round(score, 4)}), flush=True
    )


if __name__ == "__main__":
    main()
