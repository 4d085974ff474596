from relurules.testing._known import KnownFailure
from relurules.testing._case import BackendCase, Mode, Pull
