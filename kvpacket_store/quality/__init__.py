"""The proof of quality: packets beside full recompute and the methods that mend reused K and V."""
