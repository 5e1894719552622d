import sys

from watersmeet.bench.cores import main

sys.exit(main())
