from qknorm.cli import main

main()
