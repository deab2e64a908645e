"""The fastsync lab: build ext4 with coarse mtime, boot it, measure it."""
