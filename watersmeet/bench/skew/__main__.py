import sys

from watersmeet.bench.skew import main

sys.exit(main())
