from spinup.run import main

main()
