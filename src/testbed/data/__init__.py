"""Datasets: folders, arrays and manifests of images; finding them on disk, labelling, selecting and caching them."""
