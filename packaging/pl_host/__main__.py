from pl_host import main

main()
