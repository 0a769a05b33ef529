"""The Stochastic Batch Perceptron."""

TITLE = "The Stochastic Batch Perceptron"
REFERENCE = (
    "A. Cotter, S. Shalev-Shwartz, N. Srebro, *The Kernelized Stochastic Batch "
    "Perceptron*, ICML 2012."
)
WITHOUT_DATA = {
    "Figures 2 and 3, Table 2: Reuters": "The Reuters texts (money_fx) are not among the data.",
    "Section 5, Table 2: forest": "Of the 522,910 forest cover types 20,000 are at hand.",
}
