"""Where samples come from: folders, arrays and manifests, found on disk, labelled, selected, prepared once."""
