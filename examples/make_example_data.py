"""Write tumours.csv: scikit-learn's breast-cancer data with a text target, as a file to try."""

import csv

from sklearn.datasets import load_breast_cancer

data = load_breast_cancer()
with open("tumours.csv", "w", newline="", encoding="utf-8") as f:
    writer = csv.writer(f)
    writer.writerow(
        [*(str(name).replace(" ", "_") for name in data.feature_names), "diagnosis"]
    )
    for row, label in zip(data.data, data.target, strict=True):
        writer.writerow([*row, data.target_names[label]])
print("wrote tumours.csv: 569 rows, 30 columns, target 'diagnosis'")
