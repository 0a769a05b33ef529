"""
A custom kernel for text
========================

Exact solvers accept any function of two arrays as a kernel, or its values with
`kernel="precomputed"`. In this example the rows are words of three artificial languages, and
the kernel counts the pairs of adjacent letters that two words share. The picture shows the
kernel matrix, sorted by language, and the errors on new words.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.preprocessing import normalize

from kernelgrad import KernelClassifier

rng = np.random.default_rng(0)
SYLLABLES = {
    "Northern": ["sk", "or", "ga", "rd", "un", "ho"],
    "Southern": ["la", "ri", "no", "ga", "ta", "lo"],
    "Eastern": ["zh", "en", "ko", "ta", "ri", "ov"],
}


def words(language, n):
    return ["".join(rng.choice(SYLLABLES[language], 3)) for _ in range(n)]


text = [word for language in SYLLABLES for word in words(language, 200)]
labels = np.repeat(list(SYLLABLES), 200)
pairs = CountVectorizer(analyzer="char", ngram_range=(2, 2)).fit(text)
Z = normalize(pairs.transform(text))
K = (Z @ Z.T).toarray()

train = rng.permutation(600)[:200]
test = np.setdiff1d(np.arange(600), train)
model = KernelClassifier("hinge", kernel="precomputed", C=1.0, random_state=0)
model.fit(K[np.ix_(train, train)], labels[train])

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
image = left.imshow(K, cmap="viridis")
left.set_title("Share of common pairs of letters")
left.set_xlabel("Word")
left.set_ylabel("Word")
fig.colorbar(image, ax=left)
predicted = model.predict(K[np.ix_(test, train)])
ConfusionMatrixDisplay.from_predictions(labels[test], predicted, ax=right, colorbar=False)
right.set_title(f"New words: error {np.mean(predicted != labels[test]):.3f}")
plt.show()
