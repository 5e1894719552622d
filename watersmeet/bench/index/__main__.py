import sys

from watersmeet.bench.index import main

sys.exit(main())
