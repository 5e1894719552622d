import sys

from watersmeet.bench.embedded import main

sys.exit(main())
