"""What a run is: recipes, their presets, the strict loader, and training from one."""
