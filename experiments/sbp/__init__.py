"""The Stochastic Batch Perceptron."""

TITLE = "The Stochastic Batch Perceptron"
REFERENCE = (
    "A. Cotter, S. Shalev-Shwartz, N. Srebro, *The Kernelized Stochastic Batch "
    "Perceptron*, ICML 2012."
)
WITHOUT_DATA = {
    "Figure 2, Reuters": "The Reuters texts (money_fx) are not among the data.",
    "Figure 2, forest": "Of the forest cover types 20,000 rows are here, not 522,911.",
}
