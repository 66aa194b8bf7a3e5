"""Makes the documents of episode stores: lists, thumbnails, episodes, annotations, look-alikes."""
