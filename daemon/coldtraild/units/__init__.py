"""What a service manager is given so that it runs the daemon, and how each is told: systemd and launchd, behind one contract."""

from coldtraild.units.base import Installed, Manager, Programs, Service, Step

__all__ = ["Installed", "Manager", "Programs", "Service", "Step"]
