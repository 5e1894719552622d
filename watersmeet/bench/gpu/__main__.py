import sys

from watersmeet.bench.gpu import main

sys.exit(main())
